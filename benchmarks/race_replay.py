"""Races over simulated arms and over committed rows, in place of jobs: how good is the race itself?

    python benchmarks/race_replay.py [--races N] [--arms N] [--seed N] [FILE.jsonl ...]

A simulated race has 24 arms (`--arms`), a third of them within some per cent of the best. Their figures scatter by 0.2,
0.5, 2 or 5 % between processes: normal, skewed (a lognormal tail), two-peaked (every second arm, of the close ones too,
takes 1.1 to 1.6 times as long in three of ten processes), or each arm with another of these spreads ("mixed"). A race
over rows draws its figures from the repeats of each setting: from all groups of three settings or more, each with three
repeats or more, of the files, by default of all in measurements/. The race, the full product with three repeats and
successive halving run on the same arms.

Prints a line for each kind of arms, and one for all simulated and for all recorded ones. `regret` is how much slower
the chosen arm is than the best, by the means that the figures are drawn from, in the mean over all races. `decided` is
the share of races that named a winner, `wrong` the share of those in which it was more than 2 % slower than the best.
`flips` is the share of the races over the same arms that end otherwise than most. Exits with status 1 if more than 5 %
of the winners that were named are wrong, in all or in a kind with two of them.
"""

import argparse
import math
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from trainkit.analysis.arms import Arm
from trainkit.analysis.comparison import compare
from trainkit.analysis.dropping import step_times_ms
from trainkit.analysis.race import Race, Rules
from trainkit.results.runs import read_rows

MEASUREMENTS = Path(__file__).parents[1] / "measurements"
SPREADS = (0.002, 0.005, 0.02, 0.05)
SHAPES = ("normal", "skewed", "two-peaked")
MOST_WRONG = 0.05
REPEATS = 3  # of the full product
NUM_FIELDS = 20  # sets of simulated arms, each raced again and again


@dataclass(frozen=True)
class Runner:
    """An arm of a replay: the mean of its log figures, and how to draw one."""

    mean_log: float
    draw: Callable[[np.random.Generator], float]


@dataclass
class Tally:
    """The outcomes of a way to choose, over the races of one kind."""

    regrets: list[float] = field(default_factory=list)
    named: list[float] = field(default_factory=list)  # the regrets of the winners that were named
    processes: list[float] = field(default_factory=list)  # an arm
    choices: dict[int, Counter[int]] = field(default_factory=lambda: defaultdict(Counter))

    def add(self, number: int, runners: Sequence[Runner], chosen: int, num_processes: int, is_named: bool) -> None:
        """Add a race over the set of arms of this number."""
        best = min(runner.mean_log for runner in runners)
        regret = math.expm1(runners[chosen].mean_log - best)
        self.regrets.append(regret)
        if is_named:
            self.named.append(regret)
        self.processes.append(num_processes / len(runners))
        self.choices[number][chosen] += 1

    @property
    def num_wrong(self) -> int:
        return sum(regret > Rules().tolerance for regret in self.named)

    def include(self, other: "Tally", key: int) -> None:
        """Add the races of another kind, whose sets of arms get other numbers by `key`."""
        self.regrets += other.regrets
        self.named += other.named
        self.processes += other.processes
        for number, counts in other.choices.items():
            self.choices[key + number] = counts

    @property
    def flip_frac(self) -> float:
        most = sum(counts.most_common(1)[0][1] for counts in self.choices.values())
        return 1 - most / len(self.regrets)

    def line(self, kind: str, way: str) -> str:
        decided = len(self.named) / len(self.regrets)
        wrong = self.num_wrong / max(len(self.named), 1)
        return (
            f"{kind:22} {way:8} {np.mean(self.regrets):7.2%} {decided:8.1%} {wrong:7.1%} "
            f"{self.flip_frac:7.1%} {np.mean(self.processes):10.2f}"
        )


def simulated(chance: np.random.Generator, num_arms: int, spread: float | None, shape: str) -> list[Runner]:
    """Arms of which a third are close to the best; a spread of None is another one for each arm."""
    runners = []
    for number in range(num_arms):
        close = number % 3 == 0
        level = abs(chance.normal(0, 0.02)) if close else chance.uniform(0.02, 0.6)
        own_spread = chance.choice(SPREADS) if spread is None else spread
        slowdown = math.log(chance.uniform(1.1, 1.6)) if shape == "two-peaked" and number % 2 == 1 else 0.0
        runners.append(_simulated_runner(level, own_spread, shape, slowdown))
    return runners


def _simulated_runner(level: float, spread: float, shape: str, slowdown: float) -> Runner:
    share_slow = 0.3

    def draw(chance: np.random.Generator) -> float:
        noise = chance.normal(0, spread)
        if shape == "skewed":  # the tail of a lognormal, with this spread
            noise = spread * (chance.lognormal(0, 0.75) - math.exp(0.75**2 / 2)) / 1.15
        if slowdown and chance.random() < share_slow:
            noise += slowdown
        return math.exp(level + noise)

    return Runner(level + share_slow * slowdown, draw)


def recorded(paths: Sequence[Path]) -> Iterator[tuple[str, list[Runner]]]:
    """The groups of settings of files of measurements, each with its name."""
    for path in paths:
        for group in compare(read_rows(path)).groups:
            runners = []
            for candidate in group.candidates:
                times_ms = step_times_ms(candidate.rows)
                if len(times_ms) >= REPEATS:
                    runners.append(_recorded_runner(times_ms))
            if len(runners) >= 3:
                yield f"{path.stem}", runners


def _recorded_runner(times_ms: Sequence[float]) -> Runner:
    """An arm with the mean and the spread of recorded figures.

    It draws by the smoothed bootstrap, shrunk to their variance (Silverman and Young 1987). A plain one would draw the
    same figure again and again, as if the arm did not scatter.
    """
    logs = np.log(times_ms)
    mean, spread = float(logs.mean()), float(logs.std())

    def draw(chance: np.random.Generator) -> float:
        smoothed = chance.choice(logs) - mean + chance.normal(0, spread)
        return math.exp(mean + smoothed * math.sqrt(len(logs) / (len(logs) - 1) / 2))

    return Runner(mean, draw)


def run_race(runners: Sequence[Runner], chance: np.random.Generator) -> tuple[int, int, bool]:
    """Race. Returns the chosen arm, the figures that it took, and whether a winner was named."""
    race = Race([Arm(str(number)) for number in range(len(runners))])
    num_processes = 0
    while (turn := race.next_turn()) is not None:
        turn.record(runners[int(turn.arm.name)].draw(chance))
        num_processes += 1
    standing = race.standing()
    assert standing.choice is not None  # no arm fails
    return int(standing.choice.name), num_processes, race.is_confirmed(standing)


def full_product(runners: Sequence[Runner], chance: np.random.Generator) -> tuple[int, int, bool]:
    means = []
    for runner in runners:
        means.append(np.mean([math.log(runner.draw(chance)) for _ in range(REPEATS)]))
    return int(np.argmin(means)), REPEATS * len(runners), True


def halving(runners: Sequence[Runner], chance: np.random.Generator) -> tuple[int, int, bool]:
    """Successive halving: a figure of each, the better half goes on, until one is left."""
    logs: list[list[float]] = [[] for _ in runners]
    remaining, num_processes = list(range(len(runners))), 0
    while len(remaining) > 1:
        for number in remaining:
            logs[number].append(math.log(runners[number].draw(chance)))
        num_processes += len(remaining)
        remaining.sort(key=lambda number: np.mean(logs[number]))
        remaining = remaining[: math.ceil(len(remaining) / 2)]
    return remaining[0], num_processes, True


WAYS = {"race": run_race, "full": full_product, "halving": halving}


def tally(fields: Sequence[Sequence[Runner]], num_races: int, chance: np.random.Generator) -> dict[str, Tally]:
    """So many races in all over these sets of arms, in each way."""
    tallies = {way: Tally() for way in WAYS}
    for race in range(num_races):
        number = race % len(fields)
        for way, choose in WAYS.items():
            chosen, num_processes, is_named = choose(fields[number], chance)
            tallies[way].add(number, fields[number], chosen, num_processes, is_named)
    return tallies


def simulated_kinds(num_arms: int, chance: np.random.Generator) -> Iterator[tuple[str, list[list[Runner]]]]:
    """The kinds of simulated arms, each with its sets of arms."""
    for shape in SHAPES:
        for spread in (*SPREADS, None):
            name = f"{shape}, mixed" if spread is None else f"{shape}, {spread:.1%}"
            yield name, [simulated(chance, num_arms, spread, shape) for _ in range(NUM_FIELDS)]


def recorded_kinds(paths: Sequence[Path]) -> Iterator[tuple[str, list[list[Runner]]]]:
    """The files of measurements, each with its groups of settings."""
    by_file: dict[str, list[list[Runner]]] = defaultdict(list)
    for name, runners in recorded(paths):
        by_file[name].append(runners)
    yield from by_file.items()


def replay(
    title: str, kinds: Iterator[tuple[str, list[list[Runner]]]], num_races: int, chance: np.random.Generator
) -> bool:
    """Race over all kinds, and print their lines. Returns whether few enough winners are wrong."""
    pooled = {way: Tally() for way in WAYS}
    is_good = True
    for number, (kind, fields) in enumerate(kinds):
        for way, outcome in tally(fields, num_races, chance).items():
            print(outcome.line(kind, way), flush=True)
            pooled[way].include(outcome, key=1000 * number)
            if way == "race":
                is_good &= outcome.num_wrong <= max(1, MOST_WRONG * len(outcome.named))
    for way, outcome in pooled.items():
        print(outcome.line(title, way), flush=True)
    race = pooled["race"]
    return is_good and race.num_wrong <= MOST_WRONG * len(race.named)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="*", type=Path, metavar="FILE", help="files of measurements, without simulation")
    parser.add_argument("--races", type=int, default=1000, help="of each kind")
    parser.add_argument("--arms", type=int, default=24, help="of a simulated race")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    chance = np.random.default_rng(arguments.seed)
    print(f"{'arms':22} {'way':8} {'regret':>7} {'decided':>8} {'wrong':>7} {'flips':>7} {'processes/arm':>10}")
    is_good = True
    if not arguments.paths:
        is_good = replay("all simulated", simulated_kinds(arguments.arms, chance), arguments.races, chance)
    paths = arguments.paths or sorted(MEASUREMENTS.glob("*.jsonl"))
    is_good &= replay("all recorded", recorded_kinds(paths), arguments.races, chance)
    return int(not is_good)


if __name__ == "__main__":
    sys.exit(main())
