"""A race beside its judge, the whole space with three repeats, on one machine.

    python benchmarks/race_judge.py race NAME [--minutes 5] [--folder runs/judge]
    python benchmarks/race_judge.py judge NAME [--minutes 7.5] [--folder runs/judge]
    python benchmarks/race_judge.py compare NAME ... [--folder runs/judge]

The spaces are in race_spaces.yaml. `race` runs a race within a budget; `judge` runs the same settings as a plain sweep.
Both go on where the last command stopped: after `--minutes` the judge is interrupted, and the same command goes on.
Exit status 0: it has ended. 130: the judge was interrupted.

Run the race first: it finds the compile cache cold, and the judge finds it as warm as the race has left it.

`compare` prints a line for each space: the choice of the race, how much slower it is than the judge's best by the
judge's medians on the same device, and the time of the race over the time of the judge. Exits with status 1 if a choice
is more than 2 % slower, or if the judge has not ended.
"""

import argparse
import math
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from omegaconf import OmegaConf

from trainkit.analysis.dropping import step_times_ms
from trainkit.analysis.race import Rules
from trainkit.config.factors import MODE
from trainkit.formatting import percent
from trainkit.results.ledger import read_measurements
from trainkit.results.row import Row
from trainkit.results.runs import has_rows, read_rows
from trainkit.tuning.plan import short_training

ROOT = Path(__file__).parents[1]
SPACES = Path(__file__).with_name("race_spaces.yaml")
REPEATS = 3
STEPS = 100
Setting = frozenset[tuple[str, str]]


@dataclass(frozen=True)
class JudgedSpace:
    """A space: the overrides of all settings, and the values of each factor."""

    name: str
    fixed: list[str]
    factors: dict[str, list[str]]

    @property
    def eager_factors(self) -> dict[str, list[str]]:
        """The factors of an eager run."""
        factors = {MODE: ["eager"]}
        for setting, values in self.factors.items():
            if not setting.startswith("compile."):
                factors[setting] = values
        return factors

    @property
    def num_settings(self) -> int:
        num_eager = math.prod(len(values) for values in self.eager_factors.values())
        return num_eager + math.prod(len(values) for values in self.factors.values())

    def setting_of(self, overrides: Sequence[str]) -> Setting:
        """The values of all factors of a run with these overrides: the first value where there is no override."""
        typed = dict(override.split("=", 1) for override in overrides)
        factors = self.eager_factors if typed.get(MODE) == "eager" else self.factors
        return frozenset((setting, typed.get(setting, values[0])) for setting, values in factors.items())


def read_space(name: str) -> JudgedSpace:
    spaces = OmegaConf.to_container(OmegaConf.load(SPACES))
    assert isinstance(spaces, dict)
    return JudgedSpace(name, **spaces[name])


def swept(factors: dict[str, list[str]]) -> list[str]:
    """The overrides of a sweep over the factors."""
    return [f"{setting}={','.join(values)}" for setting, values in factors.items()]


def run_race(space: JudgedSpace, folder: Path, minutes: float) -> int:
    words = [
        "hydra/sweeper=race", f"hydra.sweeper.budget_min={minutes}", f"hydra.sweeper.job_steps={STEPS}",
        f"hydra.sweeper.into={folder}", f"hydra.sweeper.save_as={space.name}", f"sweep={space.name}-race",
        f"hydra.sweep.dir={folder}/{space.name}-race",
    ]  # fmt: skip
    factors = space.factors | {MODE: ["eager", *space.factors[MODE]]}
    return subprocess.run(command([*words, *space.fixed, *swept(factors)]), check=False).returncode


def run_judge(space: JudgedSpace, folder: Path, minutes: float) -> int:
    """Run what is missing of the whole space, eager first. The seconds of each session go to a file."""
    words = [
        f"sweep={space.name}-judge", f"hydra.sweep.dir={folder}/{space.name}-judge",
        f"hydra.launcher.repeats={REPEATS}", *short_training(STEPS), *space.fixed,
    ]  # fmt: skip
    started_s = time.monotonic()
    status = 0
    for factors in (space.eager_factors, space.factors):
        left_s = 60 * minutes - (time.monotonic() - started_s)
        status = status or interrupted_after(command([*words, *swept(factors)]), left_s)
    folder.mkdir(parents=True, exist_ok=True)
    with seconds_file(folder, space).open("a") as file:
        file.write(f"{time.monotonic() - started_s:.1f}\n")
    return status


def command(words: Sequence[str]) -> list[str]:
    return [sys.executable, str(ROOT / "train.py"), "-m", *words]


def interrupted_after(words: Sequence[str], limit_s: float) -> int:
    """Run a command, and interrupt it after a time. Returns its exit status."""
    process = subprocess.Popen(words)
    try:
        return process.wait(max(limit_s, 1.0))
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGINT)
        return process.wait()


def seconds_file(folder: Path, space: JudgedSpace) -> Path:
    return folder / f"{space.name}-judge.seconds"


def judged(space: JudgedSpace, folder: Path, device_name: str | None) -> dict[Setting, float]:
    """The median step time on the race's device of each setting with all its repeats."""
    rows: dict[Setting, list[Row]] = defaultdict(list)
    if has_rows(folder / f"{space.name}-judge"):
        for row in read_rows(folder / f"{space.name}-judge"):
            if row.device_name == device_name:
                rows[space.setting_of(row.overrides)].append(row)
    medians = {}
    for setting, setting_rows in rows.items():
        times_ms = step_times_ms(setting_rows)
        if len(times_ms) >= REPEATS:
            medians[setting] = median(times_ms)
    return medians


def chosen_setting(space: JudgedSpace, experiment: Path) -> Setting:
    """The setting of the experiment that a race has left."""
    config = OmegaConf.load(experiment)
    overrides = []
    for setting in space.factors:
        value = OmegaConf.select(config, setting)
        if value is not None:
            overrides.append(f"{setting}={str(value).lower()}")
    return space.setting_of(overrides)


def setting_label(setting: Setting) -> str:
    return " ".join(f"{name}={value}" for name, value in sorted(setting))


def compare(space: JudgedSpace, folder: Path) -> bool:
    """Print the comparison of a race with its judge. Returns whether the choice is good enough."""
    experiment = folder / "experiment" / "tuned" / f"{space.name}.yaml"
    if not experiment.exists():
        print(f"{space.name}: the race has not ended")
        return False
    jobs = read_measurements(folder / f"{space.name}-race")
    medians = judged(space, folder, jobs[0].device_name)
    if not medians:
        print(f"{space.name}: the judge has no setting with {REPEATS} repeats on {jobs[0].device_name}")
        return False
    chosen = chosen_setting(space, experiment)
    race_s = jobs[-1].used_s
    judge_s = sum(map(float, seconds_file(folder, space).read_text().split()))
    verdict = "undecided" if "undecided" in experiment.read_text() else "decided"
    parts = [
        f"{space.name} on {jobs[0].device_name}: {setting_label(chosen)} ({verdict})",
        f"{len(jobs)} jobs, {race_s:.0f} s, {percent(race_s / judge_s)} of the judge's {judge_s:.0f} s",
        f"judge: {len(medians)} of {space.num_settings} settings",
    ]
    regret = math.inf
    if chosen in medians:
        best = min(medians, key=lambda setting: medians[setting])
        regret = medians[chosen] / medians[best] - 1
        parts.append(f"best {setting_label(best)} {medians[best]:.3f} ms, chosen {percent(regret)} slower")
    print("; ".join(parts))
    return regret <= Rules().tolerance and len(medians) == space.num_settings


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=("race", "judge", "compare"))
    parser.add_argument("names", nargs="+", metavar="NAME", help="of race_spaces.yaml")
    parser.add_argument("--minutes", type=float, help="the budget of the race, or the time of a session of the judge")
    parser.add_argument("--folder", type=Path, default=Path("runs/judge"))
    arguments = parser.parse_args()
    folder = arguments.folder.resolve()
    status = 0
    for name in arguments.names:
        space = read_space(name)
        if arguments.action == "race":
            status = status or run_race(space, folder, arguments.minutes or 5.0)
        elif arguments.action == "judge":
            status = status or run_judge(space, folder, arguments.minutes or 7.5)
        else:
            status = max(status, int(not compare(space, folder)))
    return status


if __name__ == "__main__":
    sys.exit(main())
