"""The expected time of the jobs of a race, from its earlier jobs."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from statistics import median

from trainkit.analysis.arms import Arm
from trainkit.results.ledger import Measurement
from trainkit.tuning.space import ArmSettings

FIRST_COMPILE_S = 30.0  # of mode default, until an arm was compiled
FIRST_JOB_S = 30.0  # of a job without its compile, where that of the base was ended
WARM_SAVES = 0.8  # of the compile time of a job that found the cache cold: 0.74 to 0.90 in races on H200s
CHECK_TIMES = 2.5  # the time of a job with check=true, over that of the job without, until an arm has both
CHECKED_REPEAT = 2  # its numbers are checked before an arm gets many jobs, in the final at the latest
COLD = (None, "cold")  # what a job has found in the compile cache for its graphs, as far as torch tells


@dataclass
class Entry:
    """An arm with its settings and its jobs so far."""

    arm: Arm
    settings: ArmSettings
    jobs: list[Measurement] = field(default_factory=list)

    @property
    def first_figure(self) -> float | None:
        """The figure of the first job that has one."""
        return next((job.figure for job in self.jobs if job.figure is not None), None)

    @property
    def num_disturbed(self) -> int:
        """The jobs since the last figure that another process disturbed. Those that the end of the budget cut off are
        none, nor is a comparison with eager that did not end."""
        num_disturbed = 0
        for job in self.jobs:
            if job.figure is not None:
                num_disturbed = 0
            elif job.status != "timeout" and job.unchecked is None:
                num_disturbed += 1
        return num_disturbed

    @property
    def is_compiled(self) -> bool:
        return self.settings.compile > 0

    @property
    def was_checked(self) -> bool:
        """Whether its numbers were compared with eager's, or are known not to be comparable. A job that was disturbed,
        or cut off by the end of the budget, tells nothing."""
        return any(job.check and (job.figure is not None or job.unchecked is not None) for job in self.jobs)

    def is_checked(self, is_final: bool) -> bool:
        """Whether the numbers of the next job are compared with eager's."""
        is_due = is_final or len(self.whole_jobs) >= CHECKED_REPEAT
        return is_due and self.is_compiled and not self.was_checked

    @property
    def whole_jobs(self) -> list[Measurement]:
        """The jobs that the end of the budget did not cut off."""
        return [job for job in self.jobs if not job.is_cut_off]

    def last_job(self, is_checked: bool) -> Measurement | None:
        """The last whole job whose numbers were compared with eager's, or were not."""
        for job in reversed(self.whole_jobs):
            if job.check == is_checked:
                return job
        return None

    @property
    def compile_s(self) -> float:
        """The compile time of the job that found the cache coldest."""
        return max([job.compile_s or 0.0 for job in self.jobs], default=0.0)

    @property
    def least_compile_s(self) -> float:
        """The compile time that the arm takes at least. A job that was ended by its time limit was still compiling, or
        had only just ended; one that the end of the budget cut off tells nothing."""
        jobs = self.whole_jobs
        if jobs and all(job.status == "timeout" for job in jobs):
            return max(job.wall_s for job in jobs)
        return self.compile_s

    @property
    def found_no_graph(self) -> bool:
        """Whether a job had to compile all its graphs, or was ended by its time limit while it did."""
        return any(job.cache_found in COLD for job in self.whole_jobs)

    @property
    def before_inductor_s(self) -> float:
        """The part of the compile time that no mode changes, as far as torch has told it."""
        return max([job.before_inductor_s or 0.0 for job in self.jobs], default=0.0)

    @property
    def peak_bytes(self) -> int:
        return max([job.peak_bytes or 0 for job in self.jobs], default=0)


def predicted_s(entry: Entry, is_final: bool, entries: Sequence[Entry]) -> float:
    """The time of the next job of an arm. The first of the entries is the base. 0 while nothing was measured.

    A job takes as long as the arm's last one, of those with a check or of those without. If that was the first and
    found the compile cache cold, it takes less by WARM_SAVES of the compile. The arm's first check takes as many times
    as long as a job without one as those of other arms did. The arm's first job takes as long as one of the base, with
    the compile of the arms most like it.

    Jobs that the end of the budget cut off tell no more than that the first whole one takes at least as long.
    """
    is_checked = entry.is_checked(is_final)
    last = entry.last_job(is_checked)
    if last is not None:
        return _warm_job_s(entry, last)
    if entry.whole_jobs:
        expected_s = _check_times(entries) * _warm_job_s(entry, entry.whole_jobs[-1])
    elif not entries[0].jobs:
        return 0.0
    else:
        expected_s = _job_without_compile_s(entries[0]) + predicted_compile_s(entry, entries)
    return max(expected_s, _cut_off_s(entry, is_checked))


def _cut_off_s(entry: Entry, is_checked: bool) -> float:
    """The time that a job with or without a comparison takes at least, by those that were cut off. With one it takes no
    less than without."""
    least_s = 0.0
    for job in entry.jobs:
        if job.is_cut_off and (is_checked or not job.check):
            least_s = max(least_s, job.wall_s)
    return least_s


def predicted_check_s(entry: Entry, entries: Sequence[Entry]) -> float:
    """The time of a comparison with eager, after its first job, for an arm that has no figure. 0 for one that is eager,
    and while nothing was measured."""
    base = entries[0]
    if not entry.is_compiled or not base.jobs:
        return 0.0
    warm_s = (1 - WARM_SAVES) * _cold_compile_s(entry, entries)
    return _check_times(entries) * (_job_without_compile_s(base) + warm_s)


def _warm_job_s(entry: Entry, job: Measurement) -> float:
    """The time of a job like this one of the arm's that finds the compile cache warm."""
    was_cold = job is entry.whole_jobs[0] and job.cache_found in COLD
    if not was_cold or job.status == "timeout":
        return job.wall_s
    return job.wall_s - WARM_SAVES * (job.compile_s or 0.0)


def _job_without_compile_s(base: Entry) -> float:
    """The time of a job without its compile, from the base's last one."""
    if not base.whole_jobs or base.whole_jobs[-1].status == "timeout":
        return FIRST_JOB_S
    last = base.whole_jobs[-1]
    return last.wall_s - (last.compile_s or 0.0)


def _check_times(entries: Iterable[Entry]) -> float:
    """How many times as long a job takes that compares its numbers with eager's: the median of the arms that have jobs
    with and without a check. An arm's first job, which compiles, counts as a warm one, where the arm has no other."""
    times = []
    for entry in entries:
        figures = [job for job in entry.whole_jobs if job.figure is not None]
        checked_s = [job.wall_s for job in figures[1:] if job.check]
        plain_s = [job.wall_s for job in figures[1:] if not job.check]
        if not plain_s and figures and not figures[0].check and figures[0].cache_found != "mixed":
            plain_s = [_warm_job_s(entry, figures[0])]
        if checked_s and plain_s:
            times.append(max(1.0, median(checked_s) / median(plain_s)))
    if not times:
        return CHECK_TIMES
    return median(times)


def predicted_compile_s(entry: Entry, entries: Sequence[Entry]) -> float:
    """The compile time of an arm's first job. Its graphs are in the cache if another arm has run that differs in the
    optimizer alone."""
    warm_times_s = []
    for other in _with_same_graphs(entry, entries):
        warm_times_s += [_warm_compile_s(job) for job in other.jobs if job.figure is not None]
    if warm_times_s:
        return max(warm_times_s)
    return _cold_compile_s(entry, entries)


def coldest_compile_s(entry: Entry, entries: Iterable[Entry]) -> float:
    """The longest compile of the arms with the same graphs: whichever of them came first found the cache cold."""
    return max([other.compile_s for other in _with_same_graphs(entry, entries)], default=0.0)


def _with_same_graphs(entry: Entry, entries: Iterable[Entry]) -> list[Entry]:
    return [other for other in entries if other.settings.compiled == entry.settings.compiled]


def _warm_compile_s(job: Measurement) -> float:
    """The compile time of a job that finds the graphs of this one in the cache."""
    compile_s = job.compile_s or 0.0
    if job.cache_found in COLD:
        compile_s *= 1 - WARM_SAVES
    return compile_s


def _cold_compile_s(entry: Entry, entries: Iterable[Entry]) -> float:
    """The compile time of an arm in a cold cache, from the compiled arms that share the most overrides with it. One
    whose graphs were in the compile cache tells nothing."""
    most_shared = -1
    compiles_s: list[float] = []
    for other in entries:
        if not other.is_compiled or other.least_compile_s == 0 or not other.found_no_graph:
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
