"""How often the comparison is wrong, from recorded rows: `python benchmarks/compare.py DIR [--candidate DIR]`.

Takes the rows of DIR as repeats of one setting (a sweep of it with `hydra.launcher.repeats=10`): its even repeats
against its odd ones, and 200 A/A comparisons of arms drawn from all of them, of which at most 5 % may claim a
difference. With --candidate: the rows of the second folder against those of the first.
"""

import argparse
import random
from collections.abc import Sequence

from trainkit.results.runs import read_rows
from trainkit.stats import Ratio, ratio

NUM_SIMULATED = 200


def step_times(folder: str) -> list[float]:
    """The median step times of the runs in a folder, in the order in which they ran."""
    times = [row.step_time_ms_p50 for row in read_rows(folder) if row.status == "ok"]
    return [time for time in times if time is not None]


def words(found: Ratio) -> str:
    interval = "" if found.low is None else f" [{found.low:.4f}, {found.high:.4f}]"
    floor = "" if found.noise_floor is None else f", noise floor {100 * found.noise_floor:.2f} %"
    says = {True: "a difference", False: "no measurable difference", None: "unknown"}[found.measurable]
    return f"{found.value:.4f}{interval}{floor}: {says}"


def simulated(times: Sequence[float], seed: int = 0) -> int:
    """How many of NUM_SIMULATED comparisons of two halves of these times, drawn at random, claim a difference."""
    drawn = random.Random(seed)
    claims = 0
    for _ in range(NUM_SIMULATED):
        shuffled = drawn.sample(times, len(times))
        half = len(times) // 2
        claims += ratio(shuffled[:half], shuffled[half:]).measurable is True
    return claims


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", metavar="DIR")
    parser.add_argument("--candidate", metavar="DIR")
    options = parser.parse_args()
    times = step_times(options.folder)
    print(f"{options.folder}: {len(times)} runs, step ms {' '.join(f'{time:.3f}' for time in times)}")
    print(f"A/A, even repeats over odd ones: {words(ratio(times[::2], times[1::2]))}")
    claims = simulated(times)
    print(f"A/A, {NUM_SIMULATED} random splits: {claims} claim a difference ({100 * claims / NUM_SIMULATED:.1f} %)")
    if options.candidate:
        others = step_times(options.candidate)
        print(f"{options.candidate}: {len(others)} runs, step ms {' '.join(f'{time:.3f}' for time in others)}")
        print(f"A/B, {options.candidate} over {options.folder}: {words(ratio(others, times[: len(others)]))}")


if __name__ == "__main__":
    main()
