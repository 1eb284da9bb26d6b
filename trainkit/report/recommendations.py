"""Sentences about a group: the candidate to train with, and why."""

from collections.abc import Iterable

from trainkit.analysis.candidates import Candidate, ComparedRuns, Doubt, break_even
from trainkit.analysis.comparison import Group
from trainkit.formatting import clean, duration, factor, fixed, percent
from trainkit.report.figures import median_of, ratio_text
from trainkit.report.labels import counted, step_noun
from trainkit.report.verdicts import (
    break_even_text,
    cache_state,
    metric_beside_eager,
    metric_caveat,
    planned_steps,
    with_cache,
)
from trainkit.stats import MOST_REPEATS


def recommendation(group: Group) -> str:
    """One line: the candidate to train with, or to call with, or why there is no recommendation."""
    recommended = group.recommended
    if recommended is None:
        return clean(f"{_why_unknown(group)}.")
    choice = recommended.label
    if group.num_planned_steps is not None:
        choice += f" for a run of {planned_steps(group)}"
    if recommended.is_eager:
        return clean(f"Stay with {choice}: {_why_eager(group, recommended)}.{_faster_but_worse(group, recommended)}")
    verb = "Train"
    if group.kind == "forward":
        verb = "Call"
    sentence = f"{verb} with {choice}: {_advantages(group, recommended)}."
    fastest = _fastest(_without_worse(group), recommended)
    if group.num_planned_steps is None and fastest is not None:
        sentence += f" {fastest.label} is {_percent_faster(fastest, recommended)} faster"
        sentence += f"{_higher_cost(fastest, recommended)}."
    return clean(sentence + _faster_but_worse(group, recommended))


def _faster_but_worse(group: Group, recommended: Candidate) -> str:
    """Why the fastest candidate with a worse metric is not recommended, if it beats the recommended one."""
    worse = [candidate for candidate in group.candidates if candidate.has_worse_metric]
    fastest = _fastest(worse, recommended)
    if fastest is None:
        return ""
    faster = f"{fastest.label} is {_percent_faster(fastest, recommended)} faster"
    return f" {faster}, but its {metric_beside_eager(fastest)}."


def _advantages(group: Group, recommended: Candidate) -> str:
    advantages = f"{ratio_text(recommended.speedup)} over {recommended.baseline}"
    if recommended.total_time_s is not None:
        advantages += f", {duration(recommended.total_time_s)} in all{with_cache(recommended)}"
    if recommended.break_even is not None:
        advantages += f"; it pays off after {break_even_text(recommended.break_even, group)}"
        if group.num_planned_steps is None:
            advantages += f"{with_cache(recommended)}{_for_shorter_runs(group, recommended)}"
    return advantages + metric_caveat(recommended)


def _for_shorter_runs(group: Group, recommended: Candidate) -> str:
    """The candidate that pays off soonest over the fastest eager one, if it is not the recommended one."""
    eager = min(group.eager, key=_median_step_ms)
    soonest, soonest_pays = recommended, None
    for candidate in _without_worse(group):
        # One with a warmer cache would pay off sooner for that alone.
        if candidate.break_even is None or cache_state(candidate) != cache_state(recommended):
            continue
        pays = break_even(candidate.rows, eager.rows)
        if pays is not None and (soonest_pays is None or pays.num_steps < soonest_pays.num_steps):
            soonest, soonest_pays = candidate, pays
    if soonest is recommended or soonest_pays is None:
        return ""
    sentence = f"For shorter runs: {soonest.label} pays off first"
    if soonest.baseline != eager.label:
        sentence += f" over {eager.label}"
    return f". {sentence}, after {break_even_text(soonest_pays, group)}"


def _why_eager(group: Group, eager: Candidate) -> str:
    if group.num_planned_steps is not None:
        return _why_not_by_then(group, eager, group.num_planned_steps)
    paying = []
    for candidate in _without_worse(group):
        if candidate.break_even is not None and candidate.baseline == eager.label:
            paying.append(candidate)
    if not paying:
        return _none_is_faster(group)
    fastest = min(paying, key=_median_step_ms)
    sure = 0.0
    if fastest.speedup is not None and fastest.speedup.low is not None:
        sure = fastest.speedup.low - 1
    faster = _percent_faster(fastest, eager)
    return f"the fastest, {fastest.label}, is {faster} faster, of which {percent(sure)} is sure"


def _why_not_by_then(group: Group, eager: Candidate, num_planned_steps: int) -> str:
    """Why eager is best for the planned steps."""
    faster = []
    for candidate in sorted(_without_worse(group), key=_median_step_ms):
        if candidate.is_faster and _median_step_ms(candidate) < _median_step_ms(eager):
            faster.append(candidate)
    if not faster:
        return _none_is_faster(group)
    for candidate in faster:
        pays = candidate.break_even
        if pays is not None and pays.num_steps <= num_planned_steps and cache_state(candidate):
            return f"{_has_faster_steps(candidate, group)}, but how long it compiles with a cold cache is unknown"
    if faster[0].break_even is None:
        return f"{_has_faster_steps(faster[0], group)}, but its compile time is unknown"
    return f"{_has_faster_steps(faster[0], group)}, but compiling does not pay off by then"


def _has_faster_steps(candidate: Candidate, group: Group) -> str:
    return f"{candidate.label} has faster {step_noun(group)}s"


def _why_unknown(group: Group) -> str:
    if not group.eager:
        return "No advice: eager was not measured; run compile.mode=eager too"
    if not group.compiled:
        return "No advice: there is nothing to compare eager with"
    doubts = []
    for candidate in group.compiled:
        if candidate.doubt and candidate.doubt.hides_gain and candidate.compared_runs:
            doubts.append((candidate.doubt, candidate.compared_runs))
    if doubts:
        return _what_would_tell(*max(doubts, key=lambda doubt: doubt[0].varies))
    if any(candidate.speedup for candidate in group.compiled):
        return "No advice: too few runs"
    return "No advice: no eager run has the settings of the others"


def _what_would_tell(doubt: Doubt, runs: ComparedRuns) -> str:
    """How far the step times vary, and the repeats that would show a difference all the same."""
    repeats = counted(max(1, doubt.num_repeats - min(runs.num_own, runs.num_baseline)), "more repeat")
    if doubt.num_repeats == MOST_REPEATS:
        repeats = f"over {repeats}"
    return (
        f"Cannot tell: step times vary {factor(doubt.varies)}x between runs of one setting (a busy machine?); "
        f"{repeats} like these would show a difference of {fixed(100 * doubt.difference, 0)} %, "
        "fewer on an idle machine"
    )


def _none_is_faster(group: Group) -> str:
    if any(candidate.is_faster and candidate.has_worse_metric for candidate in group.candidates):
        return "no setting that predicts as well is measurably faster"
    return "no setting is measurably faster"


def _without_worse(group: Group) -> list[Candidate]:
    """The candidates whose metric is not worse than eager's."""
    return [candidate for candidate in group.candidates if not candidate.has_worse_metric]


def _fastest(candidates: Iterable[Candidate], reference: Candidate) -> Candidate | None:
    """The fastest of those that beat eager measurably and the reference in every run."""
    faster = []
    for candidate in candidates:
        if candidate.is_faster and candidate.comparable_step_ms.high < reference.comparable_step_ms.low:
            faster.append(candidate)
    return min(faster, key=_median_step_ms, default=None)


def _percent_faster(fast: Candidate, slow: Candidate) -> str:
    return percent(_median_step_ms(slow) / _median_step_ms(fast) - 1)


def _higher_cost(fastest: Candidate, recommended: Candidate) -> str:
    cost_s, recommended_cost_s = median_of(fastest.setup_time_s), median_of(recommended.setup_time_s)
    if cost_s is None or recommended_cost_s is None:
        return ", and its compile time is unknown"
    if cost_s > recommended_cost_s:
        return ", and compiles longer"
    if cache_state(fastest):
        return f",{with_cache(fastest)}"
    return ""


def _median_step_ms(candidate: Candidate) -> float:
    return candidate.comparable_step_ms.median
