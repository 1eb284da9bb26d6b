"""The expected time of the jobs of a race, from its earlier jobs."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from statistics import median

from trainkit.analysis.race import Arm
from trainkit.results.ledger import Measurement
from trainkit.tuning.space import ArmSettings

FIRST_COMPILE_S = 30.0  # of mode default, until an arm was compiled
WARM_SAVES = 0.5  # of the last job's compile time: the next job finds the cache as warm, or warmer
CHECK_TIMES = 2.0  # the time of a job with check=true, over that of the job without
CHECKED_REPEAT = 2  # its numbers are checked before an arm gets many jobs, and again in the final


@dataclass
class Entry:
    """An arm with its settings and its jobs so far."""

    arm: Arm
    settings: ArmSettings
    jobs: list[Measurement] = field(default_factory=list)

    @property
    def is_compiled(self) -> bool:
        return self.settings.compile > 0

    def is_checked(self, repeat: int, is_final: bool) -> bool:
        """Whether the numbers of a job are compared with eager's."""
        return self.is_compiled and (is_final or repeat == CHECKED_REPEAT)

    @property
    def last_unchecked(self) -> Measurement:
        """The last job whose numbers were not compared with eager's. The first job is one."""
        unchecked = [job for job in self.jobs if not self.is_checked(job.repeat, job.is_final)]
        return unchecked[-1]

    @property
    def compile_s(self) -> float:
        """The compile time of the job that found the cache coldest."""
        return max([job.compile_s or 0.0 for job in self.jobs], default=0.0)

    @property
    def least_compile_s(self) -> float:
        """The compile time that the arm takes at least. A job that was ended by its time limit was still compiling, or
        had only just ended."""
        if self.jobs and self.jobs[0].status == "timeout":
            return self.jobs[0].wall_s
        return self.compile_s

    @property
    def before_inductor_s(self) -> float:
        """The part of the compile time that no mode changes, as far as torch has told it."""
        return max([job.before_inductor_s or 0.0 for job in self.jobs], default=0.0)

    @property
    def peak_bytes(self) -> int:
        return max([job.peak_bytes or 0 for job in self.jobs], default=0)


def predicted_s(entry: Entry, is_final: bool, entries: Sequence[Entry]) -> float:
    """The time of the next job of an arm. The first of the entries is the base. 0 while nothing was measured.

    It takes as long as the arm's last job without a check, with half of its compile time. A first job takes as long as
    a job of the base, with the compile time of the arms that are most like it.
    """
    if entry.jobs:
        times = CHECK_TIMES if entry.is_checked(len(entry.jobs), is_final) else 1.0
        last = entry.last_unchecked
        return times * (last.wall_s - WARM_SAVES * (last.compile_s or 0.0))
    base = entries[0]
    if not base.jobs:
        return 0.0
    return base.jobs[-1].wall_s + predicted_compile_s(entry, entries)


def predicted_compile_s(entry: Entry, entries: Iterable[Entry]) -> float:
    """The compile time of an arm's first job, from the compiled arms that share the most overrides with it."""
    most_shared = -1
    compiles_s: list[float] = []
    for other in entries:
        if not other.is_compiled or other.least_compile_s == 0:
            continue
        num_shared = len(set(entry.settings.overrides) & set(other.settings.overrides))
        if num_shared > most_shared:
            most_shared, compiles_s = num_shared, []
        if num_shared == most_shared:
            compiles_s.append(_scaled_compile_s(other, entry.settings))
    if not compiles_s:
        return entry.settings.compile_multiple * FIRST_COMPILE_S
    return median(compiles_s)


def _scaled_compile_s(entry: Entry, settings: ArmSettings) -> float:
    """The compile time of a measured arm, scaled to other settings by the multiples of mode default that both are
    expected to take. What a mode multiplies is inductor's part alone."""
    before_s = min(entry.before_inductor_s, entry.least_compile_s)
    inductor_s = (entry.least_compile_s - before_s) * settings.inductor / entry.settings.inductor
    return (before_s + inductor_s) * settings.compile / entry.settings.compile


def final_s(entries: Iterable[Entry]) -> float:
    """The time that a job of each of the last two needs, at most; 0 before two arms have a figure. The cache has what
    they compile by then."""
    longest_s = 0.0
    num_measured = 0
    for entry in entries:
        measured = [job for job in entry.jobs if job.figure is not None]
        if measured:
            num_measured += 1
        for job in measured:
            longest_s = max(longest_s, job.wall_s - (job.compile_s or 0.0))
    if num_measured < 2:
        return 0.0
    return 2 * longest_s
