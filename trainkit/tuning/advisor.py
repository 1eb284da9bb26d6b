"""The race over a space within a budget: which job comes next, and what its row means for its arm."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from trainkit.analysis.advice import Round, arm_label
from trainkit.analysis.arms import Arm, Turn
from trainkit.analysis.dropping import OTHER_NUMBERS
from trainkit.analysis.race import Race, Standing
from trainkit.config.factors import BATCH_SIZE
from trainkit.results.ledger import Ledger, Measurement
from trainkit.tuning.accuracy import LEAST_SEEDS, num_seeds, worse_metric
from trainkit.tuning.batch_sizes import BatchSizes
from trainkit.tuning.budget import Budget, repeating
from trainkit.tuning.combinations import combinations
from trainkit.tuning.forecast import Entry, coldest_compile_s, predicted_check_s, predicted_s
from trainkit.tuning.goal import MEMORY, Goal
from trainkit.tuning.measuring import JobRequest, JobResult, measurement_of
from trainkit.tuning.rounds import add_round
from trainkit.tuning.space import ArmSettings, Overrides, Space, chosen_values, saves_memory, value_in

MOST_UNUSABLE = 3  # jobs of an arm, in a row, that left no figure through no fault of the arm
MOST_CROSSED = 6  # combinations that are tried
MOST_COMPOSED = 18  # combinations of which it is found out whether a run refuses them
NOTE_S = 1.0  # from a note of the race's time to the next


class Advisor:
    """A race over a space of settings within a budget.

    The ledger holds its whole state: an advisor that is made from a ledger goes on where the last one stopped.
    `complaint` says why overrides contradict each other. Arms with a complaint are not measured. `waits_for_imports`
    says whether the next job of an arm begins after imports, which take as long as the longest so far.
    """

    def __init__(
        self,
        space: Space,
        goal: Goal,
        budget: Budget,
        ledger: Ledger,
        complaint: Callable[[Overrides], str | None] = lambda overrides: None,
        waits_for_imports: Callable[[str], bool] = lambda name: False,
    ):
        self.space, self.goal, self.budget, self.ledger = space, goal, budget, ledger
        self.sizes = BatchSizes(space, goal)
        self._complaint, self._waits_for_imports = complaint, waits_for_imports
        self.race = Race([], goal.rules())
        self.entries: dict[str, Entry] = {}
        self.rounds: list[Round] = []
        for settings in self._screening(space):
            self._add(settings)
        for job in ledger.measurements:
            self._take(job)

    def run(self, measure: Callable[[JobRequest], JobResult]) -> None:
        """Measure until the race is decided, or until no job fits into the budget."""
        while (turn := self.next_turn()) is not None:
            request = self.request(turn)
            with repeating(self.note_time, NOTE_S):
                result = measure(request)
            coldest_s = coldest_compile_s(self.entries[request.name], self.entries.values())
            job = measurement_of(result, request, self.goal, coldest_s, used_s=self.budget.used_s)
            self.ledger.append(job)
            self._take(job)

    def note_time(self) -> None:
        """Keep the time that the race has used, for its next start."""
        self.ledger.note_time(self.budget.used_s)

    def next_turn(self) -> Turn | None:
        """The next turn that fits into the budget. In the end, what was kept for a final that does not fit goes to a
        comparison of the choice with eager, to a figure that the base lacks, and while nothing is decided to any
        job."""
        self._extend()
        turn = self.race.next_turn(self._may_run)
        if turn is None:
            turn = self._last_check()
        if turn is None:
            turn = self.race.next_turn(self._is_last_to_fit)
        if turn is not None and self._needs_base(turn):
            return Turn(self.race.arms[0], is_final=False)
        return turn

    def request(self, turn: Turn) -> JobRequest:
        """The job of a turn."""
        entry = self.entries[turn.arm.name]
        last_check = self._last_check()
        is_due = turn.is_final or (last_check is not None and last_check.arm is turn.arm)
        return JobRequest(
            name=turn.arm.name,
            overrides=entry.settings.overrides,
            repeat=len(entry.jobs),
            is_final=turn.is_final,
            check=entry.is_checked(is_due),
            timeout_s=self._share_s(entry, is_due),
            budget_left_s=self.budget.longest_job_s,
            has_figures=bool(turn.arm.all_figures),
        )

    def is_unchecked(self, standing: Standing) -> bool:
        """Whether the choice is compiled, and none of its jobs was compared with eager."""
        if standing.choice is None:
            return False
        entry = self.entries[standing.choice.name]
        return entry.is_compiled and not entry.was_checked

    def _needs_base(self, turn: Turn) -> bool:
        """Whether a comparison of the metric with the turn's arm needs another seed of the base."""
        base, entry = self.entries[self.race.arms[0].name], self.entries[turn.arm.name]
        if entry is base or base.arm.excluded is not None or num_seeds(base.jobs) == 0:
            return False
        needed = min(len(entry.jobs) + 1, LEAST_SEEDS)
        return len(base.jobs) < needed and self._may_run(Turn(base.arm, is_final=False))

    def _may_run(self, turn: Turn) -> bool:
        """Whether a turn fits beside the final. While the race is undecided and its choice is compiled, a setting that
        was not tried need leave no more time than a comparison with eager takes: it may be better by more than a final
        can tell."""
        standing, kept_s = self.race.standing(), self._final_s(turn)
        is_new = not turn.arm.all_figures
        if is_new and standing.choice is not None and self.entries[standing.choice.name].is_compiled:
            check_s = self._check_s(turn, standing.choice)
            kept_s = max(kept_s, check_s) if standing.is_decided else check_s
        return self._fits(turn, kept_s)

    def _check_s(self, turn: Turn, choice: Arm) -> float:
        """The time of a comparison with eager, of the choice or of what the turn tries, whichever takes longer."""
        entries = list(self.entries.values())
        check_s = predicted_check_s(self.entries[turn.arm.name], entries)
        if not self.entries[choice.name].was_checked:
            check_s = max(check_s, predicted_s(self.entries[choice.name], True, entries))
        return check_s

    def _is_last_to_fit(self, turn: Turn) -> bool:
        """Whether a turn fits that is no final; once the race is decided, one for the base's missing figure alone. A
        repeat leaves the time for that."""
        standing, base = self.race.standing(), self.race.arms[0]
        lacks_base = self.race.lacks_base(standing)
        if turn.is_final or (standing.is_decided and not (lacks_base and turn.arm is base)):
            return False
        kept_s = 0.0
        if lacks_base and turn.arm is not base and turn.arm.all_figures:
            kept_s = predicted_s(self.entries[base.name], False, list(self.entries.values()))
        return self._fits(turn, kept_s)

    def _last_check(self) -> Turn | None:
        """A job of the choice of a race that ends now, if its numbers were never compared with eager's and the
        comparison fits."""
        standing = self.race.standing()
        if standing.choice is None or not self.is_unchecked(standing):
            return None
        takes_check = Turn(standing.choice, is_final=True)
        if self.race.next_turn(self._may_run) is not None or not self._fits(takes_check, 0.0):
            return None
        return Turn(standing.choice, is_final=False)

    def _fits(self, turn: Turn, kept_s: float) -> bool:
        entries = list(self.entries.values())
        if self._waits_for_imports(turn.arm.name):
            kept_s += max([job.imports_s for job in self.ledger.measurements], default=0.0)
        return self.budget.has_room(self.entries[turn.arm.name], turn.is_final, entries, kept_s)

    def _final_s(self, turn: Turn) -> float:
        """The time of the final beside a turn: a job of each of the last two that has none in it yet, and, while
        nothing is decided, the figure that the base lacks."""
        entries = list(self.entries.values())
        standing, base = self.race.standing(), self.race.arms[0]
        arms = [arm for arm in self.race.finalists(standing) if not arm.final_figures]
        needed_s = 0.0
        for arm in arms:
            if not (turn.is_final and arm is turn.arm):
                needed_s += predicted_s(self.entries[arm.name], True, entries)
        gives_figure = turn.arm is base or base in arms
        if self.race.lacks_base(standing) and not standing.is_decided and not gives_figure:
            needed_s += predicted_s(self.entries[base.name], False, entries)
        return needed_s

    def _extend(self) -> None:
        """Add the next batch size, or, once all other arms were tried, the combinations of promising values, with a
        smaller batch where one takes too much memory.

        These follow from first figures, so a race that goes on has the same ones, but for values that are out by then.
        """
        if self._is_any_waiting() or self._is_any_waiting(self.memory_savers()):
            return
        entries = list(self.entries.values())
        space = self._space_that_runs()
        self.sizes = BatchSizes(self.space, self.goal)
        if self.goal.batch_size not in self.sizes.fits_by_size(entries):  # the reference is out, not for its batch
            self.sizes = BatchSizes(space, self.goal)
        next_size = self.sizes.next_arm(entries)
        if next_size is not None and self._is_waiting(self._add(next_size).arm):
            return
        if self._is_any_waiting([*self.sizes.smaller_arms(entries), *self._screening(space)]):
            return
        num_crossed = 0
        for settings in combinations(space, self._screened_figures(space))[:MOST_COMPOSED]:
            entry = self._add(settings)
            if entry.jobs or entry.arm.excluded is None:
                num_crossed += 1
            if num_crossed == MOST_CROSSED:
                return

    def memory_savers(self) -> list[ArmSettings]:
        """Each arm that takes too much memory, with what saves memory; that of the screening, if memory is the goal. A
        batch that is larger than the first one is no reason."""
        if self.goal.minimize == MEMORY:
            return [settings for settings in self.space.screening() if saves_memory(self.space, settings.overrides)]
        arms = []
        for entry in self.entries.values():
            size = value_in(entry.settings.overrides, BATCH_SIZE)
            is_larger = size is not None and self.sizes.is_larger(int(size))
            takes_too_much = any(job.excludes and self.sizes.is_out_of_memory(job) for job in entry.jobs)
            if takes_too_much and not is_larger and self.space.memory_savers:
                arms.append(self.space.arm(chosen_values(entry.settings.overrides) | self.space.memory_savers))
        return arms

    def _screening(self, space: Space) -> list[ArmSettings]:
        """The arms of the screening but for those that save memory."""
        return [settings for settings in space.screening() if not saves_memory(space, settings.overrides)]

    def _space_that_runs(self) -> Space:
        """The space; with the fastest screened arm as its reference, compiled if there is one, if the reference has no
        figure and is out, as for want of memory."""
        reference = self._add(self.space.arm(self.space.reference))
        figures = self._screened_figures(self.space)
        if reference.first_figure is not None or reference.arm.excluded is None or not figures:
            return self.space
        entries = [entry for entry in self.entries.values() if entry.settings.overrides in figures]
        compiled = [entry for entry in entries if entry.is_compiled]
        fastest = min(compiled or entries, key=lambda entry: figures[entry.settings.overrides])
        return replace(self.space, other_reference=chosen_values(fastest.settings.overrides))

    def _screened_figures(self, space: Space) -> dict[Overrides, float]:
        """The first figure of each arm of the screening of a space that has one and can win, and of its reference."""
        screened, sizes = {settings.overrides for settings in space.screening()}, BatchSizes(space, self.goal)
        figures = {}
        for entry in self.entries.values():
            overrides = entry.settings.overrides
            is_screened = overrides in screened or sizes.size_alone(entry.settings)
            can_win = entry.arm.excluded is None or overrides == space.arm(space.reference).overrides
            if entry.first_figure is not None and is_screened and can_win:
                figures[overrides] = entry.first_figure
        return figures

    def _is_any_waiting(self, added: Sequence[ArmSettings] = ()) -> bool:
        """Whether any arm waits for its first job, once these were added."""
        for settings in added:
            self._add(settings)
        return any(self._is_waiting(arm) for arm in self.race.arms)

    def _is_waiting(self, arm: Arm) -> bool:
        return arm.excluded is None and not arm.figures and self._may_run(Turn(arm, is_final=False))

    def _add(self, settings: ArmSettings) -> Entry:
        name = " ".join(settings.overrides) or "as it is"
        if name not in self.entries:
            arm = Arm(name, excluded=self._complaint(settings.overrides) or self._wrong_numbers(settings))
            self.entries[name] = Entry(arm, settings)
            self.race.arms.append(arm)
        return self.entries[name]

    def _take(self, job: Measurement) -> None:
        """Let a job count for its arm. One with a value that this race does not try counts for none."""
        settings = self.space.arm(chosen_values(job.overrides))
        if set(settings.overrides) != set(job.overrides):
            return
        entry = self._add(settings)
        arm = entry.arm
        if job.share_s is not None and job.share_s < self._share_s(entry, job.is_final or job.check):
            job = replace(job, excludes=False, unchecked=None)  # it had less time: it tells nothing
        entry.jobs.append(job)
        if job.figure is not None:
            Turn(arm, job.is_final).record(job.figure)
        elif job.excludes:
            arm.excluded = job.reason
        elif entry.num_disturbed >= MOST_UNUSABLE:
            arm.excluded = f"{job.reason}, {MOST_UNUSABLE} times"
        base = self.entries[self.race.arms[0].name]
        if arm.excluded is None and entry is not base:
            arm.excluded = worse_metric(entry.jobs, base.jobs)
        for other in self.entries.values():
            if other.arm.excluded is None:
                other.arm.excluded = self._wrong_numbers(other.settings)
            other.arm.cost = other.peak_bytes
            if self.goal.minimize != MEMORY:
                other.arm.cost = coldest_compile_s(other, self.entries.values())
        add_round(self.rounds, job, self.entries, self.race.standing())

    def _share_s(self, entry: Entry, is_final: bool) -> float:
        return self.budget.share_s(entry, is_final, list(self.entries.values()))

    def _wrong_numbers(self, settings: ArmSettings) -> str | None:
        """Why the numbers of an arm must be wrong: it has all settings of one whose numbers are."""
        for entry in self.entries.values():
            is_wrong = (entry.arm.excluded or "").startswith(OTHER_NUMBERS)
            if is_wrong and set(entry.settings.overrides) < set(settings.overrides):
                return f"{OTHER_NUMBERS} with {arm_label(entry.settings.overrides)}"
        return None
