"""How often the comparison is wrong, from recorded rows: `python benchmarks/compare.py DIR [--candidate DIR]`.

The rows of DIR are repeats of one setting: a sweep of it with `hydra.launcher.repeats=10`. Even repeats are compared
with odd ones, and then 200 random halves with the other half. At most 5 % of these A/A comparisons may claim a
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


def describe(times_ratio: Ratio) -> str:
    interval = "" if times_ratio.low is None else f" [{times_ratio.low:.4f}, {times_ratio.high:.4f}]"
    floor = "" if times_ratio.noise_floor is None else f", noise floor {100 * times_ratio.noise_floor:.2f} %"
    claim = {True: "a difference", False: "no measurable difference", None: "unknown"}[times_ratio.measurable]
    return f"{times_ratio.value:.4f}{interval}{floor}: {claim}"


def count_claims(times: Sequence[float], seed: int = 0) -> int:
    """The number of comparisons that claim a difference, of NUM_SIMULATED of two random halves of the times."""
    rng = random.Random(seed)
    num_claims = 0
    for _ in range(NUM_SIMULATED):
        shuffled = rng.sample(times, len(times))
        half = len(times) // 2
        if ratio(shuffled[:half], shuffled[half:]).measurable:
            num_claims += 1
    return num_claims


def print_times(folder: str, times: Sequence[float]) -> None:
    print(f"{folder}: {len(times)} runs, step ms {' '.join(f'{time:.3f}' for time in times)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", metavar="DIR")
    parser.add_argument("--candidate", metavar="DIR")
    options = parser.parse_args()
    times = step_times(options.folder)
    print_times(options.folder, times)
    print(f"A/A, even repeats over odd ones: {describe(ratio(times[::2], times[1::2]))}")
    claims = count_claims(times)
    print(f"A/A, {NUM_SIMULATED} random splits: {claims} claim a difference ({100 * claims / NUM_SIMULATED:.1f} %)")
    if options.candidate:
        candidate_times = step_times(options.candidate)
        print_times(options.candidate, candidate_times)
        candidate_ratio = ratio(candidate_times, times[: len(candidate_times)])
        print(f"A/B, {options.candidate} over {options.folder}: {describe(candidate_ratio)}")


if __name__ == "__main__":
    main()
