"""A race beside its judge, the whole space with three repeats, on one machine.

    python benchmarks/race_judge.py race NAME [--minutes 5] [--session MIN] [--folder runs/judge]
    python benchmarks/race_judge.py judge NAME [--minutes 7.5] [--folder runs/judge]
    python benchmarks/race_judge.py compare NAME ... [--folder runs/judge]

The spaces are in race_spaces.yaml. `race` runs a race within a budget; `judge` runs the same settings as a plain sweep,
a job on each visible GPU, which share the host. Both go on where the last command stopped, on the same kind of device:
the judge is interrupted after `--minutes`, the race after `--session`, if that is given. Exit status 0: it has ended.
130: it was interrupted, and the same command goes on.

Run the race first: it finds the compile cache cold, and the judge finds it as warm as the race has left it.

`compare` prints a line for each space: the choice of the race, how much slower it is than the judge's best by the
judge's medians on the same device, and the time of the race over the time of the judge, which is that of all its GPUs
together, idle ones too. Exits with status 1 if a choice is more than 2 % slower, or if the judge has not ended.
"""

import argparse
import itertools
import math
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import OmegaConf

from trainkit.analysis.dropping import step_times_ms, why_dropped
from trainkit.analysis.race import Rules
from trainkit.config.complaints import compose_typed
from trainkit.config.composition import CONF
from trainkit.config.factors import MODE
from trainkit.config.settings import typed_value, value_of
from trainkit.device_names import gpu_names
from trainkit.formatting import percent
from trainkit.results.ledger import read_measurements
from trainkit.results.row import Row
from trainkit.results.runs import read_rows
from trainkit.sweep.slots import visible_gpus
from trainkit.tuning.plan import short_training

ROOT = Path(__file__).parents[1]
SPACES = Path(__file__).with_name("race_spaces.yaml")
REPEATS = 3
STEPS = 100
JOB_FAILED, INTERRUPTED = 1, 130  # exit statuses of a sweep
Setting = frozenset[tuple[str, str]]


@dataclass(frozen=True)
class JudgedSpace:
    """A space: the overrides of all settings, and the values of each factor."""

    name: str
    fixed: list[str]
    factors: dict[str, list[str]]

    @property
    def uses_gpus(self) -> bool:
        return "trainer.accelerator=cpu" not in self.fixed

    @property
    def eager_factors(self) -> dict[str, list[str]]:
        """The factors of an eager run."""
        factors = {MODE: ["eager"]}
        for setting, values in self.factors.items():
            if not setting.startswith("compile."):
                factors[setting] = values
        return factors

    @property
    def settings(self) -> set[Setting]:
        """The eager settings and the compiled ones."""
        settings = set()
        for factors in (self.eager_factors, self.factors):
            for values in itertools.product(*factors.values()):
                overrides = [f"{name}={value}" for name, value in zip(factors, values, strict=True)]
                settings.add(self.setting_of(typed_values(overrides)))
        return settings

    def setting_of(self, values: Mapping[str, str]) -> Setting:
        """The values of all factors of a run, from the values of its settings."""
        factors = self.eager_factors if values.get(MODE) == "eager" else self.factors
        names = [factor.lstrip("+") for factor in factors]
        return frozenset((name, values.get(name, "")) for name in names)


def typed_values(overrides: Iterable[str]) -> dict[str, str]:
    """The values of overrides by setting, each in one way of writing: Hydra's sweeps write True for true."""
    values = {}
    for typed in overrides:
        override = OverridesParser.create().parse_override(typed)
        values[override.get_key_element().lstrip("+")] = typed_value(override.value())
    return values


def read_space(name: str) -> JudgedSpace:
    spaces = OmegaConf.to_container(OmegaConf.load(SPACES))
    assert isinstance(spaces, dict)
    if name not in spaces:
        sys.exit(f"{name}: expected one of {', '.join(map(str, spaces))}, the spaces of {SPACES.name}")
    return JudgedSpace(name, **spaces[name])


def swept(factors: dict[str, list[str]]) -> list[str]:
    """The overrides of a sweep over the factors."""
    return [f"{setting}={','.join(values)}" for setting, values in factors.items()]


def race_words(space: JudgedSpace) -> list[str]:
    """The overrides of a race over a space."""
    return [*space.fixed, *swept(space.factors | {MODE: ["eager", *space.factors[MODE]]})]


def run_race(space: JudgedSpace, folder: Path, minutes: float, session_min: float | None = None) -> int:
    """Run a race, or what a session has time for. Returns its exit status, INTERRUPTED unless it has ended."""
    words = [
        "hydra/sweeper=race", f"hydra.sweeper.budget_min={minutes}", f"hydra.sweeper.job_steps={STEPS}",
        f"hydra.sweeper.into={folder}", f"hydra.sweeper.save_as={space.name}", f"sweep={space.name}-race",
        f"hydra.sweep.dir={folder}/{space.name}-race",
    ]  # fmt: skip
    limit_s = None
    if session_min is not None:
        limit_s = 60 * session_min
    return run_sweep([*words, *race_words(space)], limit_s)


def run_judge(space: JudgedSpace, folder: Path, minutes: float) -> int:
    """Run what is missing of the whole space, eager first, a job on each GPU. The seconds of each session, times the
    number of GPUs, go to a file."""
    words = [
        f"sweep={space.name}-judge", f"hydra.sweep.dir={folder}/{space.name}-judge",
        f"hydra.launcher.repeats={REPEATS}", *short_training(STEPS), *space.fixed,
    ]  # fmt: skip
    num_gpus = len(visible_gpus()) if space.uses_gpus else 0
    if num_gpus > 1:
        words.append("hydra.launcher.parallel=auto")
    folder.mkdir(parents=True, exist_ok=True)
    started_s = time.monotonic()
    try:
        for factors in (space.eager_factors, space.factors):
            left_s = 60 * minutes - (time.monotonic() - started_s)
            if left_s <= 0:
                return INTERRUPTED
            status = run_sweep([*words, *swept(factors)], left_s)
            if status not in (0, JOB_FAILED):  # a setting that fails is judged too
                return status
    finally:
        with seconds_file(folder, space).open("a") as file:
            file.write(f"{(time.monotonic() - started_s) * max(1, num_gpus):.1f}\n")
    return 0


def run_sweep(words: Sequence[str], limit_s: float | None) -> int:
    """Run a sweep, and interrupt it after a time. Returns its exit status, INTERRUPTED unless it has ended."""
    process = subprocess.Popen([sys.executable, str(ROOT / "train.py"), "-m", *words])
    try:
        return process.wait(limit_s)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGINT)
    except KeyboardInterrupt:  # of the terminal, which has interrupted the sweep too
        pass
    if process.wait() == 0:
        return 0
    return INTERRUPTED


def seconds_file(folder: Path, space: JudgedSpace) -> Path:
    return folder / f"{space.name}-judge.seconds"


def other_devices(space: JudgedSpace, folder: Path) -> set[str]:
    """The devices of the earlier jobs that this machine does not have: a sweep would go on beside their rows."""
    if not space.uses_gpus:
        return set()
    here = gpu_names(visible_gpus())
    devices = {row.device_name for path in folder.glob(f"{space.name}-*/") for row in read_rows(path)}
    return {name for name in devices if name is not None and name not in here}


def judged(space: JudgedSpace, folder: Path, device_name: str | None) -> dict[Setting, float]:
    """The median step time on the race's device of each setting whose repeats have ended, infinite if all failed."""
    rows: dict[Setting, list[Row]] = defaultdict(list)
    for row in read_rows(folder / f"{space.name}-judge"):
        if row.status != "interrupted" and row.device_name in (device_name, None):
            rows[space.setting_of(typed_values(row.overrides))].append(row)
    medians = {}
    for setting in space.settings:
        if len(rows[setting]) >= REPEATS:
            times_ms = step_times_ms(row for row in rows[setting] if why_dropped(row) is None)
            medians[setting] = median(times_ms or [math.inf])
    return medians


def chosen_setting(space: JudgedSpace, folder: Path) -> Setting:
    """The setting of the experiment that a race has left."""
    config = compose_typed([f"--config-dir={folder}", f"experiment=tuned/{space.name}"], CONF, run_dir="")
    values = {}
    for factor in space.factors:
        setting = factor.lstrip("+")
        values[setting] = typed_value(value_of(config, setting))
    values[MODE] = config.compile.mode.value
    return space.setting_of(values)


def setting_label(setting: Setting) -> str:
    return " ".join(f"{name}={value}" for name, value in sorted(setting))


def compare(space: JudgedSpace, folder: Path) -> bool:
    """Print the comparison of a race with its judge. Returns whether the choice is good enough."""
    experiment = folder / "experiment" / "tuned" / f"{space.name}.yaml"
    if not experiment.exists():
        print(f"{space.name}: no race in {folder} has ended with a choice")
        return False
    jobs = read_measurements(folder / f"{space.name}-race")
    device_name = next(job.device_name for job in jobs if job.device_name is not None)
    medians = judged(space, folder, device_name)
    if not medians:
        print(f"{space.name}: the judge has no setting with {REPEATS} repeats on {device_name}")
        return False
    chosen = chosen_setting(space, folder)
    race_s = jobs[-1].used_s
    judge_s = sum(map(float, seconds_file(folder, space).read_text().split()))
    verdict = "best so far" if "best so far" in experiment.read_text() else "decided"
    parts = [
        f"{space.name} on {device_name}: {setting_label(chosen)} ({verdict})",
        f"{len(jobs)} jobs, {race_s:.0f} s, {percent(race_s / judge_s)} of the judge's {judge_s:.0f} s",
        f"judge: {len(medians)} of {len(space.settings)} settings",
    ]
    regret = math.inf
    if math.isfinite(medians.get(chosen, math.inf)):
        best = min(medians, key=lambda setting: medians[setting])
        regret = medians[chosen] / medians[best] - 1
        parts.append(f"best {setting_label(best)} {medians[best]:.3f} ms, chosen {percent(regret)} slower")
    else:
        parts.append("the judge has no figure of the choice")
    print("; ".join(parts))
    return regret <= Rules().tolerance and len(medians) == len(space.settings)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=("race", "judge", "compare"))
    parser.add_argument("names", nargs="+", metavar="NAME", help="of race_spaces.yaml")
    parser.add_argument("--minutes", type=float, help="the budget of the race, or the time of a session of the judge")
    parser.add_argument("--session", type=float, metavar="MIN", help="interrupt the race after so many minutes")
    parser.add_argument("--folder", type=Path, default=Path("runs/judge"))
    arguments = parser.parse_args()
    if arguments.session is not None and arguments.action != "race":
        parser.error("--session is for race; a session of the judge has --minutes")
    folder = arguments.folder.resolve()
    status = 0
    for space in [read_space(name) for name in arguments.names]:
        if arguments.action == "compare":
            status = max(status, int(not compare(space, folder)))
            continue
        others = other_devices(space, folder)
        if others:
            sys.exit(f"{folder} has rows of {', '.join(others)}; go on there, or give another --folder")
        if arguments.action == "race":
            status = status or run_race(space, folder, arguments.minutes or 5.0, arguments.session)
        else:
            status = status or run_judge(space, folder, arguments.minutes or 7.5)
    return status


if __name__ == "__main__":
    sys.exit(main())
