"""A race from its plan to its advice, on the terminal, as a page and as an experiment."""

import shlex
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from omegaconf import DictConfig, OmegaConf

from trainkit import cli
from trainkit.analysis.advice import Advice, arm_label, effects_of, tried_arms
from trainkit.config.composition import CONF
from trainkit.config.errors import ConfigError
from trainkit.config.factors import LeftOut
from trainkit.config.search_path import search_path_override
from trainkit.formatting import factor
from trainkit.process_tree import process_age_s
from trainkit.report import summary
from trainkit.report.advice import print_advice, write_advice
from trainkit.report.progress import DRAW_S, LiveLine, clock
from trainkit.results.ledger import Ledger
from trainkit.results.requested import run_overrides
from trainkit.sweep.plan import Sweep
from trainkit.sweep.slots import Slot
from trainkit.tuning.advisor import Advisor
from trainkit.tuning.budget import Budget
from trainkit.tuning.forecast import predicted_s
from trainkit.tuning.goal import MEMORY, time_needed
from trainkit.tuning.jobs import JobRunner
from trainkit.tuning.measuring import JobRequest, JobResult
from trainkit.tuning.plan import RacePlan, race_folder
from trainkit.tuning.space import Overrides
from trainkit.tuning.tuned import refuse_own_experiment, refuse_unwritable, write_tuned

DONE, NOTHING = 0, 1


def advise(
    plan: RacePlan,
    config: DictConfig,
    load_config: Callable[[list[str]], DictConfig],
    timeout_s: float | None,
    into: str | None,
) -> int:
    """Run a race, or the rest of one, and advise. Returns the exit status: 1 if nothing can be advised, 130 after
    Ctrl-C and 143 after SIGTERM, which print the best so far.

    Raises ConfigError, before the first job, for a race that cannot begin.
    """
    refuse_own_experiment(plan.save_as, plan.typed.fixed)
    refuse_unwritable(_tuned_into(into), plan.save_as)
    folder = race_folder(plan, config)
    folder.mkdir(parents=True, exist_ok=True)
    sweep = Sweep(folder.name, folder, config, timeout_s, 1, (Slot(),))
    with ExitStack() as last_act:
        with JobRunner(plan, sweep, load_config) as runner:
            advisor = make_advisor(plan, folder, timeout_s, runner.waits_for_imports)
            advisor.note_time()  # a start that ends before its first job counts too
            last_act.callback(advisor.note_time)
            status = _run(advisor, runner, folder)
        advice = advice_of(advisor, plan)
        print_advice(advice)
        last_line = None
        if status != DONE:
            last_line = "interrupted; the same command goes on"
        elif advice.choice is None:
            status = NOTHING
        else:
            last_line = _save(plan, advice, config, into)  # before the page, which takes a second
        try:
            page = write_advice(folder, advice, f"{plan.config.job.model} on {plan.config.job.data}: a race")
            print(f"rows, logs and {advisor.ledger.path.name}: {folder}; {page.name}", flush=True)
        finally:
            if last_line is not None:
                print(last_line, flush=True)
    return status


def _run(advisor: Advisor, runner: JobRunner, folder: Path) -> int:
    """Run the jobs of a race. Returns the exit status so far."""
    race = LiveRace(advisor, runner.measure)
    print(race.opening(folder), flush=True)
    try:
        advisor.run(race.measure)
    except KeyboardInterrupt:
        return runner.stop.exit_status
    return DONE


def make_advisor(
    plan: RacePlan,
    folder: Path,
    timeout_s: float | None = None,
    waits_for_imports: Callable[[str], bool] = lambda name: False,
) -> Advisor:
    """The advisor of a race, with the jobs of its ledger; `timeout_s` is the user's limit for a job.

    Raises ConfigError for a ledger that cannot be read, and for that of another race.
    """
    try:
        ledger = Ledger(folder, plan.identity)
    except ValueError as error:
        raise ConfigError(f"{error}; move its folder away, or give the race another, sweep=NAME") from error
    budget = Budget(60 * plan.settings.budget_min, ledger.used_s, process_age_s(), timeout_s)

    def complaint(arm: Overrides) -> str | None:
        return plan.complaint([*plan.typed.fixed, *arm])

    return Advisor(plan.space, plan.goal, budget, ledger, complaint, waits_for_imports)


class LiveRace:
    """Shows a race: a line for each job, and on a terminal the running job."""

    def __init__(self, advisor: Advisor, measure: Callable[[JobRequest], JobResult]):
        self._advisor, self._measure = advisor, measure

    def opening(self, folder: Path) -> str:
        advisor = self._advisor
        num_settings = sum(arm.excluded is None for arm in advisor.race.arms)
        line = f"race {folder.name}: {num_settings} settings at first, {clock(advisor.budget.limit_s)} in all"
        if advisor.ledger.measurements:
            return f"{line}; {len(advisor.ledger.measurements)} jobs are measured, {clock(advisor.budget.used_s)} used"
        return line

    def measure(self, request: JobRequest) -> JobResult:
        """Run a job, with its line: in the end it has the time at the job's end, and the standing before the job."""
        budget = self._advisor.budget
        started_s, started = budget.used_s, self._time()
        title = f"{self._standing()}: {arm_label(request.overrides)}"

        def text() -> str:
            return f"{started} {title}: {clock(budget.used_s - started_s)}"

        with LiveLine(text, DRAW_S if sys.stderr.isatty() else None):
            result = self._measure(request)
        print(f"{self._time()} {title}: {summary.job_outcome(result.row)}", flush=True)
        return result

    def _time(self) -> str:
        budget = self._advisor.budget
        return f"[{clock(budget.used_s)} of {clock(budget.limit_s)}]"

    def _standing(self) -> str:
        """The number of candidates that are left, and the leader with its lead."""
        advisor = self._advisor
        standing = advisor.race.standing()
        not_tried, _ = unmeasured(advisor)
        num_left = len(standing.alive) + len(not_tried)
        if standing.leader is None:
            return f"{num_left} left"
        leader = advisor.entries[standing.leader.name]
        lead = f"{arm_label(leader.settings.overrides)} leads"
        base = advisor.race.arms[0]
        if leader.arm is not base and base.figures:
            lead += f" with {factor(advisor.race.gain(leader.arm, base).value)}x"
        return f"{num_left} left, {lead}"


def advice_of(advisor: Advisor, plan: RacePlan) -> Advice:
    """The advice of a race in its present state."""
    standing = advisor.race.standing()
    jobs = {name: entry.jobs for name, entry in advisor.entries.items()}
    tried = tried_arms(advisor.race, jobs)
    choice = next((arm for arm in tried if arm.is_choice), None)
    overrides = () if choice is None else choice.overrides
    not_tried, refused = unmeasured(advisor)
    fitting = advisor.sizes.fitting(advisor.entries.values())
    capped_at = None
    if not standing.is_decided and advisor.race.is_at_cap(standing):
        capped_at = advisor.race.rules.most_samples
    return Advice(
        goal=plan.goal.words,
        tried=tuple(tried),
        base_label=arm_label(advisor.space.base.overrides),
        choice=choice,
        is_decided=standing.is_decided,
        is_confirmed=advisor.race.is_confirmed(standing),
        most_gain=standing.most_gain,
        tolerance=advisor.race.rules.tolerance,
        used_s=advisor.budget.used_s,
        budget_s=advisor.budget.limit_s,
        not_tried=tuple(not_tried),
        left_out=(*plan.left_out, *refused),
        effects=tuple(effects_of(advisor.space.effects(), tried)),
        rounds=tuple(advisor.rounds),
        largest_batch=max(fitting, default=None),
        capped_at=capped_at,
        batch_mode=advisor.sizes.space.reference_mode,
        changes_training=tuple(advisor.space.changes_training(overrides)),
        minimizes_memory=plan.goal.minimize == MEMORY,
        is_unchecked=advisor.is_unchecked(standing),
    )


def unmeasured(advisor: Advisor) -> tuple[list[LeftOut], list[LeftOut]]:
    """The arms that nothing is known of: those that did not fit into the budget, with the time that they need or what
    cut their job off, and those that are out without a job, with the reason."""
    entries = list(advisor.entries.values())
    raced = {entry.settings.overrides for entry in entries}
    not_tried, refused = [], []
    for settings in advisor.space.screening():
        if settings.overrides not in raced and not advisor.memory_savers():
            refused.append(LeftOut(arm_label(settings.overrides), "nothing takes too much memory"))
    for entry in entries:
        label = arm_label(entry.settings.overrides)
        if entry.arm.excluded is None and not entry.arm.all_figures:
            reason = time_needed(predicted_s(entry, False, entries))
            if entry.jobs:
                reason = entry.jobs[-1].reason or reason
            not_tried.append(LeftOut(label, reason))
        elif not entry.jobs:
            refused.append(LeftOut(label, entry.arm.excluded or ""))
    return not_tried, refused


def _save(plan: RacePlan, advice: Advice, config: DictConfig, into: str | None) -> str:
    """Write the experiment, and say how to train with it."""
    assert advice.choice is not None
    groups = OmegaConf.to_container(config.hydra.runtime.choices)
    assert isinstance(groups, dict)
    overrides = [*run_overrides(plan.typed.fixed), *advice.choice.overrides]
    command = command_of(plan, into)
    path = write_tuned(_tuned_into(into), plan.save_as, overrides, advice, map(str, groups), command)
    return f"{path}: {command}"


def _tuned_into(into: str | None) -> Path:
    """The config directory that gets the experiment."""
    return CONF if into is None else Path(into)


def command_of(plan: RacePlan, into: str | None) -> str:
    """The command that trains with the choice of a race: started as the race was, on as many processes, with the
    configs that it found, and without the settings that it was told to leave out."""
    command = "train" if plan.goal.kind == "train" else "bench"
    launch = shlex.split(cli.started(command))
    if plan.nproc_per_node is not None and plan.nproc_per_node > 1:
        script = launch[1:]
        if launch[0] == "trainkit":
            script = ["-m", *launch]
        launch = ["torchrun", f"--nproc-per-node={plan.nproc_per_node}", *script]
    words = list(plan.words)
    if into is not None and not words:
        words = [f"--config-dir={into}"]
    elif into is not None:  # Hydra takes one --config-dir
        words = search_path_override([*words, f"--config-dir={Path(into).resolve()}"])
    deletions = [override for override in plan.typed.fixed if override.startswith("~")]
    return shlex.join([*launch, *words, f"experiment=tuned/{plan.save_as}", *deletions])
