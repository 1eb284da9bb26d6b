"""Sentences about a candidate: its verdict, beside that of eager."""

import math

from trainkit.analysis.candidates import BreakEven, Candidate, Doubt, MetricSpread
from trainkit.analysis.comparison import Group
from trainkit.analysis.regressions import Change
from trainkit.formatting import clean, decimals, duration, fixed, percent
from trainkit.report.figures import factor_text, median_of, ratio_text
from trainkit.report.labels import run_count, step_noun
from trainkit.stats import MOST_REPEATS

MOST_DECIMALS = 12


def verdict(candidate: Candidate, group: Group) -> str:
    """One line: the gain over eager, the cost of compiling, when that pays off, and any reason against it."""
    sentence = f"{candidate.label}: {_gain(candidate, group)}"
    planned, pays = group.num_planned_steps, candidate.break_even
    if pays is not None:
        sentence += f", pays off after {break_even_text(pays, group)}"
        if planned is not None and planned < pays.num_steps:
            sentence += f"; for a run of {planned_steps(group)} stay with eager"
    if candidate.num_failed:
        total = candidate.num_failed + candidate.num_repeats
        sentence += f"; {candidate.num_failed} of {run_count(total)} failed"
    return clean(sentence + metric_caveat(candidate))


def verdicts(group: Group) -> list[str]:
    """Those worth a line. Where no eager run was measured, they would all say so, and the recommendation does."""
    sentences = []
    for candidate in group.candidates:
        if group.eager or candidate.speedup is not None or candidate.num_failed:
            sentences.append(verdict(candidate, group))
    return sentences


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
    return f"; {_repeats_for_difference(doubt)}"


def _repeats_for_difference(doubt: Doubt) -> str:
    """`5 % would take 40 repeats`."""
    count = fixed(doubt.num_repeats, 0)
    if doubt.num_repeats == MOST_REPEATS:
        count += " or more"
    return f"{fixed(100 * doubt.difference, 0)} % would take {count} repeats"


def _compile_cost(candidate: Candidate) -> str:
    cost_s, warm_s = median_of(candidate.setup_time_s), median_of(candidate.warm_compile_time_s)
    if cost_s is None:
        return "compile time unknown"
    work = "compile"
    if candidate.rows[0].export_time_s is not None:
        work = "export and compile"
    cost = f"+{duration(cost_s)} {work}{with_cache(candidate)}"
    if warm_s:
        cost += f" ({duration(warm_s)} warm)"
    return cost


def with_cache(candidate: Candidate) -> str:
    state = cache_state(candidate)
    if not state:
        return ""
    return f" with a {state} cache"


def metric_caveat(candidate: Candidate) -> str:
    beside_eager = metric_beside_eager(candidate)
    return f"; {beside_eager}" if beside_eager else ""


def metric_beside_eager(candidate: Candidate) -> str:
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


def break_even_text(pays: BreakEven, group: Group) -> str:
    """`20,000 steps (6.4 epochs, 3 min; 1,000 steps with a warm cache)`."""
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
        spent += f"; {_round_up(pays.num_warm_steps)} {step}s with a warm cache"
    return f"{steps} ({spent})"


def _round_up(num_steps: int) -> str:
    """A number of steps, rounded up to two digits."""
    scale = 10 ** max(len(str(num_steps)) - 2, 0)
    return fixed(math.ceil(num_steps / scale) * scale, 0)


def planned_steps(group: Group) -> str:
    return f"{fixed(group.num_planned_steps, 0)} {step_noun(group)}s"


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
