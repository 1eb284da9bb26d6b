"""Sentences about a comparison: the verdict on a candidate, the recommendation for a group."""

import math
from collections.abc import Iterable

from trainkit.analysis.candidates import BreakEven, Candidate, MetricSpread, break_even
from trainkit.analysis.comparison import Group
from trainkit.analysis.regressions import Change
from trainkit.formatting import clean, decimals, duration, factor, fixed, percent
from trainkit.report.figures import factor_text, median_of, ratio_text
from trainkit.report.labels import run_count, step_noun
from trainkit.stats import MOST_REPEATS

MOST_DECIMALS = 12


def verdict(candidate: Candidate, group: Group) -> str:
    """One line: the gain over eager, the cost of compiling, when that pays off, and any reason against it."""
    sentence = f"{candidate.label}: {_gain(candidate, group)}"
    planned, pays = group.num_planned_steps, candidate.break_even
    if pays is not None:
        sentence += f", pays off after {_break_even_text(pays, group)}"
        if planned is not None and planned < pays.num_steps:
            sentence += f"; for a run of {_planned_steps(group)} stay with eager"
    if candidate.num_failed:
        total = candidate.num_failed + candidate.num_repeats
        sentence += f"; {candidate.num_failed} of {run_count(total)} failed"
    return clean(sentence + _metric_caveat(candidate))


def recommendation(group: Group) -> str:
    """One line: the candidate to train with, or to call with, or why there is no recommendation."""
    recommended = group.recommended
    if recommended is None:
        return clean(f"No advice: {_why_unknown(group)}.")
    choice = recommended.label
    if group.num_planned_steps is not None:
        choice += f" for a run of {_planned_steps(group)}"
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


def cache_state(candidate: Candidate) -> str:
    """`warm` or `partly warm` if no run found a cold compile cache: the full compile time is unknown then."""
    return {"warm": "warm", "mixed": "partly warm"}.get(candidate.cache_found or "", "")


def break_even_steps(pays: BreakEven, step: str) -> str:
    """The steps to break even, as precise as such an estimate is."""
    return f"{_round_up(pays.num_steps)} {step}s"


def _gain(candidate: Candidate, group: Group) -> str:
    speedup, baseline = candidate.speedup, candidate.baseline
    if candidate.is_eager:
        return "the baseline of the others" if group.compiled else "not compiled"
    if speedup is None:
        return "no eager row to compare with"
    gain = ratio_text(speedup)
    if speedup.measurable is None:
        return f"unknown: {_too_few_runs(candidate)} ({factor_text(speedup)} over {baseline})"
    if not speedup.measurable:
        difference = f"no measurable difference from {baseline}"
        if candidate.doubt is not None and candidate.doubt.hides_gain:
            difference = f"cannot tell whether it is faster than {baseline}"
        return f"{difference} ({gain}, noise floor {percent(speedup.noise_floor)}{_repeats_needed(candidate)})"
    if speedup.value < 1:
        return f"{gain}: slower than {baseline}"
    return f"{gain} over {baseline}, {_compile_cost(candidate)}"


def _too_few_runs(candidate: Candidate) -> str:
    """The side of a speed-up that has one run, and whether it has more on machines that the other side lacks."""
    runs, few = candidate.compared_runs, "1 run"
    if runs is not None and runs.num_own > 1:
        few = "1 run of eager"
    if runs is not None and runs.num_left_out:
        few += " on a common machine"
    return few


def _repeats_needed(candidate: Candidate) -> str:
    """The repeats that would show a difference, if there are fewer."""
    doubt = candidate.doubt
    if doubt is None or doubt.num_repeats <= candidate.num_repeats:
        return ""
    count = fixed(doubt.num_repeats, 0)
    if doubt.num_repeats == MOST_REPEATS:
        count += " or more"
    return f"; {fixed(100 * doubt.difference, 0)} % would take {count} repeats"


def _compile_cost(candidate: Candidate) -> str:
    cost_s, warm_s = median_of(candidate.setup_time_s), median_of(candidate.warm_compile_time_s)
    if cost_s is None:
        return "compile time unknown"
    work = "compile"
    if candidate.rows[0].export_time_s is not None:
        work = "export and compile"
    cost = f"+{duration(cost_s)} {work}{_with_cache(candidate)}"
    if warm_s:
        cost += f" ({duration(warm_s)} warm)"
    return cost


def _with_cache(candidate: Candidate) -> str:
    state = cache_state(candidate)
    if not state:
        return ""
    return f" with a {state} cache"


def _metric_caveat(candidate: Candidate) -> str:
    beside_eager = _metric_beside_eager(candidate)
    return f"; {beside_eager}" if beside_eager else ""


def _metric_beside_eager(candidate: Candidate) -> str:
    metric, eager_metric = candidate.metric, candidate.eager_metric
    if metric is None or eager_metric is None:
        return ""
    side = "better" if metric.is_better_than(eager_metric) else "worse"
    value, eager_value = _texts_that_differ(metric.spread.median, eager_metric.spread.median)
    whose = "another eager setting's" if candidate.is_eager else "eager's"
    return f"{metric.name} {value} is {side} than {whose} {eager_value} {_how_sure(metric, eager_metric)}"


def _how_sure(metric: MetricSpread, eager_metric: MetricSpread) -> str:
    """Whether a difference is more than chance: only several seeds of both sides show how far chance goes."""
    if len(metric.seeds) > 1 and len(eager_metric.seeds) > 1:
        return "by more than chance"
    if metric.seeds == eager_metric.seeds:
        return "with this seed; others may differ"
    return "with these seeds; others may differ"


def _texts_that_differ(value: float, other: float) -> tuple[str, str]:
    """Two numbers with three decimals, or with as many as tell them apart."""
    digits = decimals([value, other], 3)
    while fixed(value, digits) == fixed(other, digits) and digits < MOST_DECIMALS:
        digits += 1
    return fixed(value, digits), fixed(other, digits)


def _faster_but_worse(group: Group, recommended: Candidate) -> str:
    """Why the fastest candidate with a worse metric is not recommended, if it beats the recommended one."""
    worse = [candidate for candidate in group.candidates if candidate.has_worse_metric]
    fastest = _fastest(worse, recommended)
    if fastest is None:
        return ""
    faster = f"{fastest.label} is {_percent_faster(fastest, recommended)} faster"
    return f" {faster}, but its {_metric_beside_eager(fastest)}."


def _break_even_text(pays: BreakEven, group: Group) -> str:
    """`20,000 steps (6.4 epochs, 3 min; 1,000 with a warm cache)`."""
    step, planned = step_noun(group), group.num_planned_steps
    steps = break_even_steps(pays, step)
    # Not rounded up beyond the planned steps if it pays off within them.
    if planned is not None and pays.num_steps <= planned < 1.1 * pays.num_steps:
        steps = f"{fixed(pays.num_steps, 0)} {step}s"
    spent = duration(60 * pays.minutes)
    if pays.num_epochs is not None:
        decimals = 0 if pays.num_epochs >= 2 else 1
        spent = f"{fixed(pays.num_epochs, decimals)} epochs, {spent}"
    if pays.num_warm_steps is not None:
        spent += f"; {_round_up(pays.num_warm_steps)} with a warm cache"
    return f"{steps} ({spent})"


def _round_up(num_steps: int) -> str:
    """A number of steps, rounded up to two digits."""
    scale = 10 ** max(len(str(num_steps)) - 2, 0)
    return fixed(math.ceil(num_steps / scale) * scale, 0)


def _planned_steps(group: Group) -> str:
    return f"{fixed(group.num_planned_steps, 0)} {step_noun(group)}s"


def _advantages(group: Group, recommended: Candidate) -> str:
    advantages = f"{ratio_text(recommended.speedup)} over {recommended.baseline}"
    if recommended.total_time_s is not None:
        advantages += f", {duration(recommended.total_time_s)} in all{_with_cache(recommended)}"
    if recommended.break_even is not None:
        advantages += f"; it pays off after {_break_even_text(recommended.break_even, group)}"
        if group.num_planned_steps is None:
            advantages += f"{_with_cache(recommended)}{_for_shorter_runs(group, recommended)}"
    return advantages + _metric_caveat(recommended)


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
    return f". {sentence}, after {_break_even_text(soonest_pays, group)}"


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
        return "eager was not measured; run compile.mode=eager too"
    if not group.compiled:
        return "there is nothing to compare eager with"
    doubts = [candidate.doubt for candidate in group.compiled if candidate.doubt and candidate.doubt.hides_gain]
    if doubts:
        varies = max(doubt.varies for doubt in doubts)
        return f"step times vary {factor(varies)}x between runs of one setting (a busy machine?)"
    if any(candidate.speedup for candidate in group.compiled):
        return "too few runs"
    return "no eager run has the settings of the others"


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
        return f",{_with_cache(fastest)}"
    return ""


def _median_step_ms(candidate: Candidate) -> float:
    return candidate.comparable_step_ms.median


def change_verdict(change: Change) -> str:
    """Whether a setting got slower, faster or larger than before."""
    worse = []
    if change.slower:
        worse.append("slower")
    if change.uses_more_memory:
        worse.append("uses more memory")
    if worse:
        return ", ".join(worse)
    if change.step_time.measurable is None:
        return "unknown: too few runs"
    if change.step_time.measurable:
        return "faster"
    return "no measurable difference"
