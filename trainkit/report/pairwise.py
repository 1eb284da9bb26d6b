"""Sentences about pairwise comparisons, and about the claims that they check."""

from collections import Counter
from collections.abc import Sequence
from statistics import median

from trainkit.analysis.claims import MIN_FRACTIONS, ClaimedRatio, Outcome, judge_claim
from trainkit.analysis.grouping import are_numbers, short_override
from trainkit.analysis.pairs import PairwiseComparison, is_fraction
from trainkit.formatting import clean, decimals, factor, fixed, shares, size
from trainkit.report.figures import ratio_text
from trainkit.report.labels import choice_labels, compared_label, counted, pair_label
from trainkit.results.columns import columns
from trainkit.results.row import Row

Pairs = Sequence[PairwiseComparison]
BESIDE_STOPPED = "†"


def pairwise_sentences(pairs: Pairs) -> list[str]:
    """Describe the pairs (at least one) of the same two choices: one sentence, or a heading and a line for each kind of
    work. Each line goes along the values of one condition that differs: a number if there is one.
    """
    first = pairs[0]
    subject = pair_label(first)
    axis = _axis(pairs)
    kinds: dict[str, list[PairwiseComparison]] = {}
    for pair in pairs:
        kinds.setdefault(_kind_of_work(pair, axis), []).append(pair)
    if len(kinds) == 1:
        (kind,) = kinds
        if kind:
            subject += f" ({kind})"
        return [clean(f"{subject}: {_series_text(pairs, axis)}.")]
    sentences = [clean(f"{subject}:")]
    for kind, same_kind in kinds.items():
        sentence = f"{_series_text(same_kind, axis)}."
        if kind:
            sentence = f"{kind}: {sentence}"
        sentences.append(clean(sentence))
    return sentences


def outcomes_text(outcomes: Sequence[Outcome]) -> str:
    """`held`, `did not hold in all`, `held in 3 of 6, undecided in 3`, of at least one outcome."""
    counts = Counter(outcomes)
    distinct = [outcome for outcome in Outcome if counts[outcome]]
    if len(distinct) == 1:
        (outcome,) = distinct
        if len(outcomes) == 1:
            return outcome.value
        return f"{outcome.value} in all"
    parts = [f"{outcome.value} in {counts[outcome]}" for outcome in distinct]
    parts[0] += f" of {len(outcomes)}"
    return ", ".join(parts)


def found_sentence(pairs: Pairs) -> str:
    """What at least one pair of the same two choices found, without its figures: `scope=parts is slower than
    scope=step in 3 of 4, undecided in 1.`"""
    first = pairs[0]
    labels = choice_labels(first.choice, first.baseline)
    counts = Counter(judge_claim(ClaimedRatio("above"), pair) for pair in pairs)
    num_open = counts[Outcome.OPEN] + counts[Outcome.NONE]
    if num_open == len(pairs):
        return f"No difference between {labels.choice} and {labels.baseline} is measurable."
    sides = {"higher": counts[Outcome.HELD], "lower": counts[Outcome.NOT]}
    verb = f"has {{}} {compared_label(first).lower()} than"
    if first.column is None:
        sides = {"faster": counts[Outcome.HELD], "slower": counts[Outcome.NOT]}
        verb = "is {} than"
    side = max(sides, key=lambda name: sides[name])
    sentence = f"{labels.choice} {verb.format(side)} {labels.baseline}"
    if len(pairs) > 1:
        sentence += " in all" if sides[side] == len(pairs) else f" in {sides[side]} of {len(pairs)}"
    for other, number in {**sides, "undecided": num_open}.items():
        if other != side and number:
            sentence += f", {other} in {number}"
    return f"{sentence}."


def claimed_text(claimed: ClaimedRatio, column: str | None) -> str:
    """The ratio that is claimed; of fractions, which have none, the side with more of them; or which side is better."""
    if claimed.side in ("better", "worse"):
        return claimed.side
    if is_fraction(column):
        return {"below": "fewer", "above": "more"}[claimed.side]
    if claimed.number is None:
        return f"{claimed.side} 1x"
    if claimed.up_to is not None:
        return f"{factor(claimed.number)}x to {factor(claimed.up_to)}x"
    return f"{claimed.side} {factor(claimed.number)}x"


def condition_text(pair: PairwiseComparison) -> str:
    """The conditions that tell the pair from others: `train, data.batch_size=64`."""
    return _kind_of_work(pair, None)


def measured_text(pair: PairwiseComparison) -> str:
    """The ratio with its interval, or without one both sides; of a metric which is better, if they differ by more than
    chance; and a mark if a row has `beside_stopped_jobs`."""
    if pair.of_fraction:
        text = f"{shares(pair.choice_values)} and {shares(pair.baseline_values)}"
    elif pair.ratio is None:
        text = sides_text(pair)
    else:
        text = ratio_text(pair.ratio)
        if pair.ratio.low is None:
            text += " (1 run)"
    num_runs = min(len(pair.choice_values), len(pair.baseline_values))
    if pair.ratio is None and not pair.of_metric and num_runs < MIN_FRACTIONS:
        text += f" ({counted(num_runs, 'run')})"
    if pair.metric_differs and pair.higher_is_better is not None:
        text += ", better" if pair.choice_is_higher == pair.higher_is_better else ", worse"
    if any(row.beside_stopped_jobs for row in pair.choice_rows + pair.baseline_rows):
        text += f" {BESIDE_STOPPED}"
    return text


def sides_text(pair: PairwiseComparison) -> str:
    """The medians of both sides in one unit: `36.71 us against 86.44 us`. Without a ratio also the lowest and the
    highest run of a side, if these read differently: `0.422 s (0.392 s to 0.551 s) against 0 s`."""
    unit, scale = "ms", 1.0
    if pair.column is not None:
        unit = columns(Row)[pair.column].unit
    if unit == "ms" and max(median(pair.choice_values), median(pair.baseline_values)) < 1:
        unit, scale = "us", 1e3
    sides = []
    for values in (pair.choice_values, pair.baseline_values):
        text = _with_unit(scale * median(values), unit)
        lowest, highest = _with_unit(scale * min(values), unit), _with_unit(scale * max(values), unit)
        if pair.ratio is None and lowest != highest:
            text += f" ({lowest} to {highest})"
        sides.append(text)
    return " against ".join(sides)


def _with_unit(value: float, unit: str) -> str:
    if unit == "bytes":
        return size(int(value))
    text = fixed(value, decimals([value], 4))
    if value == 0:
        text = "0"
    elif 0 < value < 0.0005:
        text = f"{value:.3g}"
    return f"{text} {unit}".strip()


def _axis(pairs: Pairs) -> str | None:
    """The condition to go along, of those that all pairs have and that differ: the number with the most values, or the
    last one if none is a number."""
    values: dict[str, set[str]] = {}
    for name in pairs[0].conditions:
        if all(name in pair.conditions for pair in pairs):
            values[name] = {pair.conditions[name] for pair in pairs}
    differing = [name for name in values if len(values[name]) > 1] or list(values)
    numbers = [name for name in differing if are_numbers(name, values[name])]
    if numbers:
        return max(numbers, key=lambda name: len(values[name]))
    if differing:
        return differing[-1]
    return None


def _kind_of_work(pair: PairwiseComparison, axis: str | None) -> str:
    """The conditions beside the axis."""
    labels = []
    for name, value in pair.conditions.items():
        if name != axis:
            labels.append(short_override(f"{name}={value}"))
    return ", ".join(labels)


def _series_text(pairs: Pairs, axis: str | None) -> str:
    """Each pair with its value on the axis: `0.60x [0.60, 0.60] at num_ops=1; 1.50x [1.49, 1.51] at 10`."""
    if axis is None:
        return "; ".join(single_text(pair) for pair in pairs)
    values = [pair.conditions[axis] for pair in pairs]
    if len(pairs) == 1:
        return single_text(pairs[0], f" at {short_override(f'{axis}={values[0]}')}")
    parts: list[str] = []
    no_difference: list[str] = []
    for pair, value in zip(pairs, values, strict=True):
        name = value if parts else short_override(f"{axis}={value}")
        parts.append(with_notes(f"{measured_text(pair)} at {name}", pair))
        if _no_difference(pair):
            no_difference.append(value)
    if no_difference:
        where = "any" if len(no_difference) == len(pairs) else ", ".join(no_difference)
        parts.append(f"no measurable difference at {where}")
    if are_numbers(axis, values):
        crossing = _crossing(pairs, values)
        if crossing is not None:
            parts.append(f"measurably faster from {crossing} on")
    return "; ".join(parts)


def single_text(pair: PairwiseComparison, where: str = "") -> str:
    """The ratio, whether it is a measurable difference, and the pair's notes."""
    text = f"{measured_text(pair)}{where}"
    if _no_difference(pair):
        text += ", no measurable difference"
    return with_notes(text, pair)


def with_notes(text: str, pair: PairwiseComparison) -> str:
    """The text and the notes of the pair."""
    return ", ".join([text, *pair.notes])


def _no_difference(pair: PairwiseComparison) -> bool:
    if pair.of_metric:
        return min(len(pair.choice_values), len(pair.baseline_values)) > 1 and not pair.metric_differs
    return pair.ratio is not None and pair.ratio.measurable is False


def _crossing(pairs: Pairs, values: Sequence[str]) -> str | None:
    """The value from which on the choice is measurably faster, if it is at no value before; the pairs are in order."""
    faster = []
    for pair in pairs:
        if pair.column is not None or pair.ratio is None or pair.ratio.measurable is None:
            return None
        faster.append(pair.ratio.measurable and pair.ratio.value > 1)
    if True not in faster:
        return None
    first = faster.index(True)
    if not all(faster[first:]):
        return None
    return values[first]
