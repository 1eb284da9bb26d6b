"""Claims, their published and measured figures and their verdicts, as the lines of tables."""

import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from trainkit.analysis.claims import judge_claim
from trainkit.analysis.pairs import PairwiseComparison
from trainkit.analysis.studies import MeasuredClaim, MeasuredComparison, OtherClaim, PlannedComparison, StudyResult
from trainkit.formatting import factor
from trainkit.report.labels import compared_label, counted, pair_label
from trainkit.report.markdown import escape, text_table
from trainkit.report.pairwise import (
    BESIDE_STOPPED,
    claimed_text,
    condition_text,
    measured_text,
    outcomes_text,
    sides_text,
    with_notes,
)
from trainkit.results.row import Row

NOT_MEASURED = "not measured"
OTHER_WORK = "‡"
MARKS = {
    BESIDE_STOPPED: "measured while other jobs on the device were [stopped](stopped_jobs.md).",
    OTHER_WORK: "of other work than the source's: another size, or training in place of a forward pass.",
}
MAX_SHOWN = 3  # pairs in a line of the index


@dataclass(frozen=True)
class ClaimLine:
    """One comparison of a claim, or a claim that no comparison tests, as Markdown; several `measured` stand below each
    other."""

    compared: str
    published: str
    measured: list[str]
    verdict: str
    command: str


def claim_lines(measured_claim: MeasuredClaim, study_name: str) -> list[ClaimLine]:
    claim = measured_claim.claim
    lines: list[ClaimLine] = []
    for measured in measured_claim.comparisons:
        planned = measured.planned
        commands = commands_of(rows_of_pairs(measured.pairs)) or [f"`make studies STUDIES={study_name}`"]
        texts = [escape(with_notes(_pair_text(measured, pair), pair)) for pair in measured.pairs] or ["no rows yet"]
        published = published_text(planned)
        if not lines and claim.published is not None:
            published = f"{escape(claim.published)}<br>{published}"
        verdict = verdict_text([measured])
        lines.append(ClaimLine(escape(pair_label(planned)), published, texts, verdict, "<br>".join(commands)))
    if claim.not_measured is not None:
        published = ""
        if not lines:
            published = escape(claim.published or "")
        lines.append(ClaimLine("", published, [escape(claim.not_measured)], NOT_MEASURED, "-"))
    return lines


def claimed_and_compared(measured_claim: MeasuredClaim, page: str) -> str:
    """The claim, linked to its page if it has one, and below it the comparisons that test it, as Markdown."""
    labels = dict.fromkeys(pair_label(measured.planned) for measured in measured_claim.comparisons)
    lines = [linked(measured_claim.claim.text, page)]
    if len(labels) <= MAX_SHOWN:
        lines += [f"<sub>{escape(label)}</sub>" for label in labels]
    return "<br>".join(lines)


def linked(text: str, page: str) -> str:
    if not page:
        return escape(text)
    return f"[{escape(text)}]({page})"


def claim_table(result: StudyResult, other_claims: Sequence[OtherClaim]) -> str:
    """The claims of a study with their sources, a line for each comparison that tests one, and the other claims."""
    lines = []
    for measured_claim in result.claims:
        claim = measured_claim.claim
        claimed = f"{claim.source}: {escape(claim.text)}"
        for line in claim_lines(measured_claim, result.study.name):
            lines.append([claimed, line.compared, line.published, "<br>".join(line.measured), line.verdict])
            claimed = ""
    for other in other_claims:
        claimed = f"{other.source}: {escape(other.claim)}"
        lines.append([claimed, "", escape(other.published), escape(other.measured), other.verdict])
    return text_table(["claimed", "compared", "published", "measured", "held?"], lines)


def published_text(planned: PlannedComparison) -> str:
    """`12.3890 ms against 8.4707 ms: 0.68x; below 1x`."""
    parts = []
    published = planned.published
    if published is not None:
        text = f"{published.choice} against {published.baseline}"
        if published.ratio is not None:
            text += f": {factor(published.ratio)}x"
        parts.append(text)
    claimed = planned.claimed
    if claimed is not None and (published is None or claimed.number != published.ratio):
        parts.append(claimed_text(claimed, planned.column))
    return escape("; ".join(parts))


def measured_texts(measured: MeasuredComparison) -> list[str]:
    """A text for each pair, as Markdown: the ratio with its interval, marks, both sides, and the conditions."""
    return [escape(_pair_text(measured, pair)) for pair in measured.pairs]


def _pair_text(measured: MeasuredComparison, pair: PairwiseComparison) -> str:
    parts = [_marked(measured, pair)]
    if pair.ratio is not None:
        parts.append(f"({sides_text(pair)})")
    condition = condition_text(pair)
    if condition:
        parts.append(f"at {condition}")
    return " ".join(parts)


def _marked(measured: MeasuredComparison, pair: PairwiseComparison) -> str:
    if measured.other_work:
        return f"{measured_text(pair)} {OTHER_WORK}"
    return measured_text(pair)


def marks_of(text: str) -> str:
    """The meanings of the marks in a text, as Markdown; "" without any."""
    return "<br>".join(f"{mark} {meaning}" for mark, meaning in MARKS.items() if mark in text)


def verdict_text(comparisons: Sequence[MeasuredComparison]) -> str:
    """The outcomes over all pairs, and the number of comparisons that were not measured."""
    outcomes, num_unmeasured = [], 0
    for measured in comparisons:
        claimed = measured.planned.claimed
        if not measured.pairs:
            num_unmeasured += 1
        elif claimed is not None:
            outcomes += [judge_claim(claimed, pair) for pair in measured.pairs]
    if not outcomes:
        return NOT_MEASURED
    if num_unmeasured == 0:
        return outcomes_text(outcomes)
    return f"{outcomes_text(outcomes)}; {counted(num_unmeasured, 'comparison')} {NOT_MEASURED}"


def summary(comparisons: Sequence[MeasuredComparison]) -> str:
    """The measured ratios in one line, as Markdown: each of a few, or of each column the lowest and the highest."""
    texts: list[str] = []
    by_column: dict[str, list[tuple[float, str]]] = {}
    for measured in comparisons:
        texts += measured_texts(measured)
        for pair in measured.pairs:
            if pair.ratio is not None:
                of_column = by_column.setdefault(compared_label(measured.planned), [])
                of_column.append((pair.ratio.value, _marked(measured, pair)))
    num_ratios = sum(map(len, by_column.values()))
    if not texts:
        return NOT_MEASURED
    if len(texts) <= MAX_SHOWN or num_ratios < 2:
        more = f"; and {len(texts) - MAX_SHOWN} more" if len(texts) > MAX_SHOWN else ""
        return "; ".join(texts[:MAX_SHOWN]) + more
    ranges = _ranges(by_column)
    if len(texts) > num_ratios:
        ranges.append(f"{len(texts) - num_ratios} of fractions")
    return escape("; ".join(ranges))


def _ranges(by_column: Mapping[str, Sequence[tuple[float, str]]]) -> list[str]:
    """The lowest and the highest of the values of each column, behind its title if there are several."""
    ranges = []
    for title, values in by_column.items():
        text = _lowest_to_highest(values)
        if len(by_column) > 1:
            text = f"{title}: {text}"
        ranges.append(text)
    return ranges


def _lowest_to_highest(ratios: Sequence[tuple[float, str]]) -> str:
    """The lowest and the highest of these values, by their texts."""
    if len(ratios) == 1:
        return ratios[0][1]
    return f"{min(ratios)[1]} to {max(ratios)[1]} in {len(ratios)} comparisons"


def published_summary(measured_claim: MeasuredClaim) -> str:
    """The published figures in one line: each of a few, or of each column the lowest and the highest ratio."""
    comparisons = measured_claim.comparisons
    texts = list(dict.fromkeys(published_text(measured.planned) for measured in comparisons))
    if measured_claim.claim.published is not None:
        texts.insert(0, escape(measured_claim.claim.published))
    if len(texts) <= MAX_SHOWN:
        return "<br>".join(texts)
    by_column: dict[str, list[tuple[float, str]]] = {}
    for measured in comparisons:
        published = measured.planned.published
        if published is not None and published.ratio is not None:
            of_column = by_column.setdefault(compared_label(measured.planned), [])
            of_column.append((published.ratio, f"{factor(published.ratio)}x"))
    if not by_column:
        return "<br>".join(texts)
    return escape("; ".join(_ranges(by_column)))


def rows_of_pairs(pairs: Iterable[PairwiseComparison]) -> list[Row]:
    rows: list[Row] = []
    for pair in pairs:
        rows += pair.choice_rows + pair.baseline_rows
    return rows


def commands_of(rows: Iterable[Row]) -> list[str]:
    """The commands that measure these rows, as Markdown, with what was typed behind the experiment for all of them."""
    shared_overrides: dict[tuple[str, str, str], list[str]] = {}
    for row in rows:
        script = "train.py"
        if row.kind == "forward":
            script = "scripts/bench.py"
        parallel = ""
        if row.num_parallel_jobs > 1:
            parallel = f" hydra.launcher.parallel={row.num_parallel_jobs}"
        for number, override in enumerate(row.overrides):
            if override.startswith("experiment="):
                others = row.overrides[number + 1 :]
                cache = " ".join(word for word in others if word.startswith("compile.cache="))
                command = (f"python {script} -m {override}", parallel, cache)
                words = shared_overrides.get(command, others)
                shared_overrides[command] = [word for word in words if word in others]
    commands = []
    for (command_line, parallel, _), overrides in shared_overrides.items():
        words = [command_line, *map(shlex.quote, overrides)]
        commands.append(f"`{' '.join(words)}{parallel}`")
    return commands
