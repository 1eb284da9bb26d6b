"""How long the jobs of a race will take, from those that were run."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from statistics import median

from trainkit.analysis.race import Arm
from trainkit.results.ledger import Measurement
from trainkit.tuning.space import ArmSettings

FIRST_COMPILE_S = 30.0  # of mode default, until one was measured
WARM_SAVES = 0.5  # of the last job's compile time: the next one finds the cache warm, or as warm
CHECK_TIMES = 2.0  # the time of a job with check=true, over that of the job without


@dataclass
class Entry:
    """An arm with its settings and its jobs so far."""

    arm: Arm
    settings: ArmSettings
    jobs: list[Measurement] = field(default_factory=list)

    @property
    def is_compiled(self) -> bool:
        return self.settings.compile > 0

    @property
    def compile_s(self) -> float:
        """The compile time of the job that found the cache coldest."""
        return max([job.compile_s or 0.0 for job in self.jobs], default=0.0)

    @property
    def peak_bytes(self) -> int:
        return max([job.peak_bytes or 0 for job in self.jobs], default=0)


def predicted_s(entry: Entry, is_final: bool, entries: Sequence[Entry]) -> float:
    """The time of the next job of an arm; the first of the entries is the base.

    It takes as long as the arm's last one, with half of its compile time. A first job takes as long as one of the base,
    with the compile time of mode default times the expected multiple. 0 while nothing was measured.
    """
    if entry.jobs:
        times = CHECK_TIMES if is_final and entry.is_compiled else 1.0
        return times * (entry.jobs[-1].wall_s - WARM_SAVES * (entry.jobs[-1].compile_s or 0.0))
    base = entries[0]
    if not base.jobs:
        return 0.0
    return base.jobs[-1].wall_s + entry.settings.compile * _default_compile_s(entries)


def final_s(entries: Iterable[Entry]) -> float:
    """The time that a job of each of the last two needs, at most; what they compile is in the cache by then."""
    longest_s = 0.0
    for entry in entries:
        for job in entry.jobs:
            if job.figure is not None:
                longest_s = max(longest_s, job.wall_s - (job.compile_s or 0.0))
    return 2 * longest_s


def _default_compile_s(entries: Iterable[Entry]) -> float:
    """The compile time of mode default, as far as the arms that were compiled tell it."""
    compiles_s = []
    for entry in entries:
        if entry.jobs and entry.jobs[0].compile_s and entry.is_compiled:
            compiles_s.append(entry.jobs[0].compile_s / entry.settings.compile)
    return median(compiles_s) if compiles_s else FIRST_COMPILE_S
