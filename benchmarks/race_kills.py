"""Kills races at random moments, starts the same command again, and looks for what was lost.

    python benchmarks/race_kills.py [--kills 20] [--seed 0]

A race of a network that is many times as fast compiled (tests/tuning/planted.py) is killed, by SIGKILL, SIGTERM, SIGINT
or SIGHUP, 1 to 45 s after its start, and the same command is started again, until it ends. Then the next race begins,
up to `--kills` kills. The ledger must grow by whole lines alone, no job of an arm may be measured twice, every job that
has ended must be in the ledger, and every race must end with the one choice that is right.

It prints a line for each kill and each end, and exits with status 1 if anything was lost.
"""

import argparse
import random
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from trainkit.results.ledger import LEDGER_FILE, Measurement, read_measurements
from trainkit.results.runs import read_rows

ROOT = Path(__file__).parent.parent
PLANTED = ROOT / "tests" / "tuning" / "planted.py"
SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
SOONEST_S, LATEST_S = 1.0, 45.0
LIMIT_S = 600  # for a race to end
EXPECTED = ("compile.mode=default", "compile.backend=eager")
RACE = (
    "-m", "hydra/sweeper=race", "sweep=race", "hydra.sweeper.budget_min=600", "hydra.sweeper.job_steps=25",
    "hydra.sweeper.into=mine", "model=own", "model._target_=planted.Net", "+model.inputs=images", "data=digits",
    "compile.mode=eager,default", "compile.backend=eager,planted_wrong,planted_oom", "compile.scope=net",
    "trainer.channels_last=false", "optimizer.foreach=null", "trainer.accelerator=cpu",
)  # fmt: skip


def start(folder: Path) -> subprocess.Popen[str]:
    with (folder / "output.txt").open("a") as output:
        return subprocess.Popen(
            [sys.executable, str(ROOT / "train.py"), *RACE], cwd=folder, stdout=output, stderr=output, text=True,
            start_new_session=True,
        )  # fmt: skip


def kills_of_race(folder: Path, chance: random.Random, num_kills: int) -> Iterator[str]:
    """Kill a race up to `num_kills` times. Yields a line for each kill, with what was lost."""
    before: list[Measurement] = []
    for _ in range(num_kills):
        number, delay_s = chance.choice(SIGNALS), chance.uniform(SOONEST_S, LATEST_S)
        process = start(folder)
        try:
            process.wait(delay_s)
        except subprocess.TimeoutExpired:
            process.send_signal(number)
            process.wait()
        else:
            return
        after = measurements(folder)
        problems = lost(before, after)
        problem = "; ".join(problems) or "nothing lost"
        yield f"{number.name:7} after {delay_s:4.1f} s, {len(after):2} jobs measured: {problem}"
        before = after


def race_folder(folder: Path) -> Path:
    return folder / "runs" / "sweeps" / "race"


def measurements(folder: Path) -> list[Measurement]:
    race = race_folder(folder)
    return read_measurements(race) if (race / LEDGER_FILE).exists() else []


def lost(before: list[Measurement], after: list[Measurement]) -> list[str]:
    """What is missing of the lines before a kill, and what was measured twice."""
    problems = []
    if after[: len(before)] != before:
        problems.append("lines of the ledger are gone")
    counts = Counter((tuple(job.overrides), job.repeat) for job in after)
    for (overrides, repeat), count in counts.items():
        if count > 1:
            problems.append(f"{' '.join(overrides)} was measured {count} times as number {repeat}")
    return problems


def unrecorded(folder: Path) -> list[str]:
    """The jobs that ended without being in the ledger when their race has ended: each ran again."""
    recorded = {job.run_id for job in measurements(folder)}
    problems = []
    for row in read_rows(race_folder(folder)):
        if row.status != "interrupted" and row.run_id not in recorded:
            problems.append(f"{row.run_id} had ended ({row.status}), and is not in the ledger")
    return problems


def end(folder: Path) -> str:
    """Let a race run to its end. Returns what is wrong with it, or nothing."""
    before = measurements(folder)
    status = start(folder).wait(LIMIT_S)
    if status != 0:
        return f"exit status {status}"
    problems = [*lost(before, measurements(folder)), *unrecorded(folder)]
    (tuned,) = (folder / "mine" / "experiment" / "tuned").glob("*.yaml")
    text = tuned.read_text()
    for override in EXPECTED:
        if f"{override.partition('.')[2].replace('=', ': ')}\n" not in text:
            problems.append(f"{override} was not chosen")
    return "; ".join(problems)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    chance = random.Random(arguments.seed)
    num_kills = num_lost = num_races = 0
    while num_kills < arguments.kills:
        with tempfile.TemporaryDirectory(prefix="race-kills-") as name:
            folder = Path(name)
            shutil.copy(PLANTED, folder)
            for line in kills_of_race(folder, chance, arguments.kills - num_kills):
                num_kills += 1
                num_lost += not line.endswith("nothing lost")
                print(f"{num_kills:3} {line}", flush=True)
            problem = end(folder)
            num_races += 1
            num_lost += bool(problem)
            num_jobs = len(measurements(folder))
            print(f"    race {num_races} ended after {num_jobs} jobs: {problem or 'the expected choice'}", flush=True)
    print(f"{num_kills} kills in {num_races} races, {num_lost} with a loss or another choice (seed {arguments.seed})")
    return int(num_lost > 0)


if __name__ == "__main__":
    sys.exit(main())
