"""What a comparison comes to, in words: of a setting, of a group, of one choice over another."""

import math
from collections import Counter
from collections.abc import Iterable, Sequence

from trainkit.analysis.candidates import BreakEven, Candidate, break_even
from trainkit.analysis.claims import Claim, Outcome, judge_claim
from trainkit.analysis.comparison import Group
from trainkit.analysis.grouping import MACHINE, NUMBER, short_override
from trainkit.analysis.pairs import PairwiseComparison
from trainkit.formatting import clean, duration, factor, fixed, percent, shares
from trainkit.report.figures import factor_text, median_of, ratio_text
from trainkit.report.labels import contrast_of, num_runs, step_of


def verdict(setting: Candidate, group: Group) -> str:
    """One line: what a setting gains over eager, what compiling costs and when it pays, what speaks against it."""
    words = f"{setting.label}: {_gain(setting)}"
    pays, planned = setting.break_even, group.num_planned_steps
    if pays is not None:
        words += f", pays after {_when(pays, step_of(group), planned)}"
        if planned is not None and planned < pays.num_steps:
            words += f"; for a run of {fixed(planned, 0)} {step_of(group)}s stay with eager"
    if setting.num_failed:
        words += f"; {setting.num_failed} of {num_runs(setting.num_failed + setting.num_repeats)} failed"
    return clean(words + _caveat(setting))


def _caveat(setting: Candidate) -> str:
    if setting.accuracy_matches is not False:
        return ""
    return f"; accuracy {fixed(median_of(setting.val_accuracy), 3)} differs from eager's by more than chance"


def _gain(setting: Candidate) -> str:
    speedup, over = setting.speedup, setting.baseline
    if setting.is_eager:
        return "what the others are compared with"
    if speedup is None:
        return "no eager row to compare with"
    if speedup.measurable is None:
        return f"unknown: 1 run{' of eager' if setting.num_repeats > 1 else ''} ({factor_text(speedup)} over {over})"
    if not speedup.measurable:
        return f"no measurable difference to {over} ({ratio_text(speedup)}, noise floor {percent(speedup.noise_floor)})"
    if speedup.value < 1:
        return f"{ratio_text(speedup)}: slower than {over}"
    cost, warm = median_of(setting.compile_time_s), median_of(setting.warm_compile_time_s)
    if cost is None:
        return f"{ratio_text(speedup)} over {over}, compile time unknown"
    beside = f" ({duration(warm)} warm)" if warm else ""
    return f"{ratio_text(speedup)} over {over}, +{duration(cost)} compile{_cache_words(setting)}{beside}"


def _cache_words(setting: Candidate) -> str:
    cache = cache_state(setting)
    return f" with a {cache} cache" if cache else ""


def cache_state(setting: Candidate) -> str:
    """How warm a compile cache every run found, where none found it cold: what compiling costs alone is unknown."""
    return {"warm": "warm", "mixed": "partly warm"}.get(setting.cache_found or "", "")


def _when(pays: BreakEven, step: str, planned: int | None = None) -> str:
    epochs = [] if pays.num_epochs is None else [f"{fixed(pays.num_epochs, 0 if pays.num_epochs >= 2 else 1)} epochs"]
    warm = "" if pays.num_warm_steps is None else f"; {_two_digits(pays.num_warm_steps)} with a warm cache"
    # Not rounded beyond the planned steps by which it has paid.
    exact = planned is not None and pays.num_steps <= planned < 1.1 * pays.num_steps
    num_steps = f"{fixed(pays.num_steps, 0)} {step}s" if exact else break_even_steps(pays, step)
    return f"{num_steps} ({', '.join([*epochs, duration(60 * pays.minutes)])}{warm})"


def break_even_steps(pays: BreakEven, step: str) -> str:
    return f"{_two_digits(pays.num_steps)} {step}s"


def _two_digits(num_steps: int) -> str:
    """The two digits that such an estimate has, rather too many steps than too few."""
    scale = 10 ** max(len(str(num_steps)) - 2, 0)
    return fixed(math.ceil(num_steps / scale) * scale, 0)


def recommendation(group: Group) -> str:
    """One line: which setting to train with, or to call with, or why that is not known."""
    advised, planned = group.recommended, group.num_planned_steps
    run = "" if planned is None else f" for a run of {fixed(planned, 0)} {step_of(group)}s"
    if advised is None:
        words = f"No advice: {_unknown(group)}."
    elif advised.is_eager:
        words = f"Stay with {advised.label}{run}: {_why_eager(group, advised)}."
    else:
        in_all = "" if advised.total_time_s is None else f", {duration(advised.total_time_s)} in all"
        in_all += _cache_words(advised) if advised.total_time_s is not None else ""
        gain = f"{ratio_text(advised.speedup)} over {advised.baseline}{in_all}{_pays(group, advised)}{_caveat(advised)}"
        words = f"{'Call' if group.kind == 'forward' else 'Train'} with {advised.label}{run}: {gain}."
        if planned is None and (faster := _faster(group, advised)) is not None:
            words += f" {faster.label} is {percent(_gap(advised, faster))} faster{_dearer(faster, advised)}."
    return clean(words)


def _why_eager(group: Group, advised: Candidate) -> str:
    if group.num_planned_steps is None:
        gains = [s for s in group.candidates if s.break_even is not None and s.baseline == advised.label]
        first = min(gains, key=lambda setting: setting.step_time_ms.median, default=None)
        if first is None:
            return "no setting is measurably faster"
        sure = percent(0.0 if first.speedup is None or first.speedup.low is None else first.speedup.low - 1)
        return f"the fastest, {first.label}, is {percent(_gap(advised, first))} faster, of which {sure} is sure"
    faster = _faster(group, advised)
    return (
        "no setting is measurably faster"
        if faster is None
        else f"{faster.label} has faster {step_of(group)}s, but its compiling does not pay by then"
    )


def _faster(group: Group, than: Candidate) -> Candidate | None:
    """The setting with the shortest step of those that are measurably faster than eager, and faster than this one."""
    known = [s for s in group.candidates if s.speedup is not None and s.speedup.measurable and s.speedup.value > 1]
    shorter = [s for s in known if s.step_time_ms.high < than.step_time_ms.low]
    return min(shorter, key=lambda setting: setting.step_time_ms.median, default=None)


def _gap(slower: Candidate, faster: Candidate) -> float:
    return slower.step_time_ms.median / faster.step_time_ms.median - 1


def _dearer(faster: Candidate, than: Candidate) -> str:
    cost, other = median_of(faster.compile_time_s), median_of(than.compile_time_s)
    if cost is None or other is None:
        return ", and its compile time is unknown"
    return ", and compiles longer" if cost > other else "" if not cache_state(faster) else f",{_cache_words(faster)}"


def _pays(group: Group, advised: Candidate) -> str:
    """When the advised setting pays, and which one pays sooner where no number of steps decides between them."""
    if advised.break_even is None:
        return ""
    words = f"; it pays after {_when(advised.break_even, step_of(group), group.num_planned_steps)}"
    if group.num_planned_steps is not None:
        return words
    # All over the eager setting that a short run does best with, whichever one each of them was compared with.
    eager = min((s for s in group.candidates if s.is_eager), key=lambda setting: setting.step_time_ms.median)
    alike = [
        s for s in group.candidates if s.break_even and cache_state(s) == cache_state(advised)
    ]  # a warm cache pays sooner
    pays = [(s, over) for s in alike if (over := break_even(s.rows, eager.rows)) is not None]
    first, over = min(pays, key=lambda one: one[1].num_steps, default=(advised, advised.break_even))
    words += _cache_words(advised)
    if first is advised:
        return words
    named = "" if first.baseline == eager.label else f" over {eager.label}"
    return f"{words}. For shorter runs: {first.label} pays first{named}, after {_when(over, step_of(group))}"


def _unknown(group: Group) -> str:
    if not any(setting.is_eager for setting in group.candidates):
        return "eager was not measured"
    compiled = [setting for setting in group.candidates if not setting.is_eager]
    if not compiled:
        return "there is nothing to compare eager with"
    return "too few runs" if any(s.speedup for s in compiled) else "no eager run has the settings of the others"


def pairwise_sentences(pairs: Sequence[PairwiseComparison]) -> list[str]:
    """What a choice measured over another, for each work (at least one) that has both, with its interval: one sentence,
    or its beginning and a line for each kind of work. Each goes through the values of one of the settings that tell the
    works apart: of a number where there is one."""
    first = pairs[0]
    subject = contrast_of(first.column, first.choice, first.baseline)
    axis = _axis(pairs)
    kinds: dict[str, list[PairwiseComparison]] = {}
    for pair in pairs:
        kinds.setdefault(_beside(pair, axis), []).append(pair)
    lines = [(kind, _series(alike, axis)) for kind, alike in kinds.items()]
    if len(lines) == 1:
        ((kind, measured),) = lines
        return [clean(f"{subject}{kind and f' ({kind})'}: {measured}.")]
    return [clean(f"{subject}:"), *(clean(f"{kind and f'{kind}: '}{measured}.") for kind, measured in lines)]


def _axis(pairs: Sequence[PairwiseComparison]) -> str | None:
    """Of the settings that all pairs have and that tell them apart a number, of several the one with most values; the
    last one where none is."""
    names = [name for name in pairs[0].conditions if all(name in pair.conditions for pair in pairs)]
    values = {name: {pair.conditions[name] for pair in pairs} for name in names}
    apart = [name for name in names if len(values[name]) > 1] or names
    numbers = [name for name in apart if _is_number(name, values[name])]
    return max(numbers, key=lambda name: len(values[name]), default=apart[-1] if apart else None)


def _is_number(name: str, values: Iterable[str]) -> bool:
    return name not in MACHINE and all(map(NUMBER.fullmatch, values))


def _series(pairs: Sequence[PairwiseComparison], axis: str | None) -> str:
    if axis is None:
        return "; ".join(map(_measured, pairs))
    numbers = _is_number(axis, (pair.conditions[axis] for pair in pairs))
    ordered = sorted(pairs, key=lambda pair: float(pair.conditions[axis])) if numbers else pairs
    places = [pair.conditions[axis].removesuffix(".0") if numbers else pair.conditions[axis] for pair in ordered]
    named = [short_override(f"{axis}={places[0]}"), *places[1:]]
    if len(ordered) == 1:
        return _measured(ordered[0], named[0])
    measured = [_figure(pair, place) for pair, place in zip(ordered, named, strict=True)]
    alike = [place for pair, place in zip(ordered, places, strict=True) if _alike(pair)]
    if alike:
        where = "any" if len(alike) == len(ordered) else ", ".join(alike)
        measured.append(f"no measurable difference at {where}")
    return "; ".join(measured) + (_from_where(ordered, places) if numbers else "")


def _measured(pair: PairwiseComparison, place: str = "") -> str:
    return _figure(pair, place, ["no measurable difference"] * _alike(pair))


def _figure(pair: PairwiseComparison, place: str, remarks: Sequence[str] = ()) -> str:
    return ", ".join([f"{_chance(pair)}{place and f' at {place}'}", *remarks, *pair.notes])


def _alike(pair: PairwiseComparison) -> bool:
    return pair.ratio is not None and pair.ratio.measurable is False


def _chance(pair: PairwiseComparison) -> str:
    if pair.ratio is None:
        return f"{shares(pair.choice_values)} and {shares(pair.baseline_values)}"
    return ratio_text(pair.ratio) + " (1 run)" * (pair.ratio.low is None)


def _beside(pair: PairwiseComparison, axis: str | None) -> str:
    """What tells its kind of work from the others."""
    return ", ".join(short_override(f"{name}={value}") for name, value in pair.conditions.items() if name != axis)


def _from_where(ordered: Sequence[PairwiseComparison], places: Sequence[str]) -> str:
    """From which number on the choice is measurably faster, where it is so at none before it."""
    known = [pair.ratio for pair in ordered if pair.ratio is not None and pair.column is None]
    if not 1 < len(ordered) == len(known) or any(of.measurable is None for of in known):
        return ""
    faster = [bool(of.measurable) and of.value > 1 for of in known]
    before = faster.count(False)  # all of them, where it stays faster once it is
    return f"; measurably faster from {places[before]} on" if any(faster) and all(faster[before:]) else ""


def claim_sentence(claim: Claim, pairs: Sequence[PairwiseComparison]) -> str:
    """One sentence: what was claimed, and of how many of these comparisons (at least one) it held."""
    if pairs[0].of_fraction:
        said = {"below": "fewer", "above": "more"}[claim.side]
    else:
        said = f"{claim.side} {'1' if claim.number is None else factor(claim.number)}x"
    counts = Counter(judge_claim(claim, pair) for pair in pairs)
    if len(counts) == 1:
        told = f"{next(iter(counts)).value}{' in all' * (len(pairs) > 1)}"
    else:
        first, *rest = (f"{known.value} in {counts[known]}" for known in Outcome if counts[known])
        told = ", ".join([f"{first} of {len(pairs)}", *rest])
    return f"Claimed to be {said}: {told}."
