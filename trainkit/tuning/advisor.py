"""The race itself: which job comes next, within which time, and what its row means for its arm."""

import time
from collections.abc import Callable
from dataclasses import dataclass

from trainkit.analysis.advice import arm_label
from trainkit.analysis.race import Arm, Race, Turn
from trainkit.config.factors import BATCH_SIZE, LeftOut
from trainkit.results.ledger import Ledger, Measurement
from trainkit.results.row import Row
from trainkit.sweep.processes import GRACE_S
from trainkit.tuning.forecast import Entry, final_s, predicted_s
from trainkit.tuning.goal import MEMORY, Goal, problem_of, throughput, time_needed
from trainkit.tuning.space import ArmSettings, Overrides, Space

FIRST_SHARE = 0.5  # of the budget, for the first job
LEAST_SHARE = 0.1  # of the budget, for a job whose time was predicted too short
TIMES_PREDICTED = 3.0  # the share of a job, over the time that it is predicted to take
MOST_UNUSABLE = 3  # jobs of an arm without a figure that were not its fault
MOST_CROSSED = 6  # combinations that are tried


@dataclass(frozen=True)
class JobRequest:
    """A job to run: its arm's name and overrides, the number of the arm's earlier jobs, whether to compare its numbers
    with eager's, and the seconds after which it is ended."""

    name: str
    overrides: Overrides
    repeat: int
    check: bool
    timeout_s: float


class Clock:
    """The time that a race has taken: that of its earlier starts, and of this process since it has started."""

    def __init__(self, earlier_s: float, process_age_s: float = 0.0, now: Callable[[], float] = time.monotonic):
        self._now = now
        self._start = now() - process_age_s - earlier_s

    @property
    def used_s(self) -> float:
        return self._now() - self._start


class Advisor:
    """A race over a space of settings within a budget.

    All that it knows is in its ledger: an advisor that is made from it goes on where the last one stopped. `complaint`
    says why overrides contradict each other: such an arm is not measured.
    """

    def __init__(
        self,
        space: Space,
        goal: Goal,
        budget_s: float,
        ledger: Ledger,
        clock: Clock,
        complaint: Callable[[Overrides], str | None] = lambda overrides: None,
    ):
        self.space, self.goal, self.budget_s = space, goal, budget_s
        self.ledger, self.clock, self._complaint = ledger, clock, complaint
        self.race = Race([], goal.rules())
        self.entries: dict[str, Entry] = {}
        self._is_crossed = False
        for settings in space.screening():
            self._add(settings)
        for job in ledger.measurements:
            self._take(job)

    def run(self, measure: Callable[[JobRequest], Row]) -> None:
        """Measure until the race is decided, or until no job fits into the budget."""
        while (turn := self.next_turn()) is not None:
            request = self.request(turn)
            started_s = self.clock.used_s
            row = measure(request)
            job = self._measurement(turn, request, row, self.clock.used_s - started_s)
            self.ledger.append(job)
            self._take(job)

    def next_turn(self) -> Turn | None:
        """The next turn that fits into the budget."""
        self._extend()
        return self.race.next_turn(self.may_run)

    def may_run(self, turn: Turn) -> bool:
        """Whether a job fits into what is left, with what the final needs."""
        entries = list(self.entries.values())
        needed_s = GRACE_S + predicted_s(self.entries[turn.arm.name], turn.is_final, entries)
        if not turn.is_final:
            needed_s += final_s(entries)
        return needed_s <= self.left_s

    @property
    def left_s(self) -> float:
        return max(0.0, self.budget_s - self.clock.used_s)

    def request(self, turn: Turn) -> JobRequest:
        """The job of a turn, with the share of the budget that it may take."""
        entry = self.entries[turn.arm.name]
        expected_s = predicted_s(entry, turn.is_final, list(self.entries.values()))
        share_s = max(TIMES_PREDICTED * expected_s, LEAST_SHARE * self.budget_s)
        if expected_s == 0:
            share_s = FIRST_SHARE * self.budget_s
        most_s = max(self.left_s - GRACE_S, 1.0)
        return JobRequest(
            name=turn.arm.name,
            overrides=entry.settings.overrides,
            repeat=len(entry.jobs),
            check=turn.is_final and entry.is_compiled,
            timeout_s=min(share_s, most_s),
        )

    def not_tried(self) -> list[LeftOut]:
        """The arms without any job, and how long they would take."""
        entries = list(self.entries.values())
        left_out = []
        for entry in entries:
            if not entry.jobs and entry.arm.excluded is None:
                left_out.append(
                    LeftOut(arm_label(entry.settings.overrides), time_needed(predicted_s(entry, False, entries)))
                )
        return left_out

    def contradictions(self) -> list[LeftOut]:
        """The arms whose settings contradict each other, and how."""
        left_out = []
        for entry in self.entries.values():
            if not entry.jobs and entry.arm.excluded is not None:
                left_out.append(LeftOut(arm_label(entry.settings.overrides), entry.arm.excluded))
        return left_out

    def _extend(self) -> None:
        """Add the next batch size, or once all others were tried the combinations of promising values."""
        if self._is_crossed or any(self._is_waiting(arm) for arm in self.race.arms):
            return
        size = self.space.next_batch_size(self.tried_sizes())
        if size is not None and self._is_waiting(self._add(self.space.batch_arm(size)).arm):
            return
        self._is_crossed = True
        figures = {}
        for entry in self.entries.values():
            if entry.jobs and entry.jobs[0].figure is not None:
                figures[entry.settings.overrides] = entry.jobs[0].figure
        for settings in self.space.crossed(figures, MOST_CROSSED):
            self._add(settings)

    def _is_waiting(self, arm: Arm) -> bool:
        return arm.excluded is None and not arm.figures and self.may_run(Turn(arm, is_final=False))

    def tried_sizes(self) -> dict[int, bool]:
        """Whether the batch sizes that were tried by themselves fit."""
        fits = {}
        for entry in self.entries.values():
            for override in entry.settings.overrides:
                setting, _, value = override.partition("=")
                is_size = setting == BATCH_SIZE and bool(entry.jobs)
                if is_size and self.space.batch_arm(int(value)).overrides == entry.settings.overrides:
                    fits[int(value)] = entry.arm.excluded is None
        return fits

    def _add(self, settings: ArmSettings) -> Entry:
        name = " ".join(settings.overrides) or "as it is"
        if name not in self.entries:
            arm = Arm(name, excluded=self._complaint(settings.overrides))
            self.entries[name] = Entry(arm, settings)
            self.race.arms.append(arm)
        return self.entries[name]

    def _measurement(self, turn: Turn, request: JobRequest, row: Row, wall_s: float) -> Measurement:
        """What a row says of its arm."""
        entry = self.entries[turn.arm.name]
        reason, excludes = problem_of(row)
        if reason is None:
            reason = self.goal.violation(row)
            excludes = reason is not None
        figure = None
        if reason is None:
            figure = self.goal.figure(row, max(entry.compile_s, _compile_s(row) or 0.0))
        return Measurement(
            overrides=list(request.overrides),
            repeat=request.repeat,
            is_final=turn.is_final,
            run_id=row.run_id,
            status=row.status,
            wall_s=wall_s,
            used_s=self.clock.used_s,
            figure=figure,
            reason=reason,
            excludes=excludes,
            step_time_ms=row.step_time_ms,
            samples_per_s=throughput(row),
            compile_s=_compile_s(row),
            peak_bytes=row.peak_device_bytes,
            batch_size=row.batch_size,
            num_graph_breaks=row.num_graph_breaks,
            device_name=row.device_name,
            torch_version=row.torch_version,
        )

    def _take(self, job: Measurement) -> None:
        """Let a job count for its arm."""
        entry = self._add(ArmSettings(tuple(job.overrides)))
        arm = entry.arm
        entry.jobs.append(job)
        if job.figure is not None:
            Turn(arm, job.is_final).record(job.figure)
        elif job.excludes:
            arm.excluded = job.reason
        elif sum(earlier.figure is None for earlier in entry.jobs) >= MOST_UNUSABLE:
            arm.excluded = f"{job.reason}, {MOST_UNUSABLE} times"
        arm.cost = entry.peak_bytes if self.goal.minimize == MEMORY else entry.compile_s


def _compile_s(row: Row) -> float | None:
    """All the time that a job compiled, its start-up included."""
    if row.compile_time_s is None:
        return None
    return row.compile_time_s + (row.compile_startup_s or 0.0)
