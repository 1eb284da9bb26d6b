"""Claims and what was measured of them, as text: the lines of the tables on a study's page and on the pages of all."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from trainkit.analysis.claims import judge_claim
from trainkit.analysis.pairs import PairwiseComparison
from trainkit.analysis.studies import MeasuredClaim, MeasuredComparison, PlannedComparison, StudyResult
from trainkit.formatting import decimals, factor, fixed, size
from trainkit.report.labels import counted, pair_label
from trainkit.report.markdown import escape, text_table
from trainkit.report.pairwise import claimed_text, condition_text, measured_text, outcomes_text
from trainkit.results.columns import columns
from trainkit.results.row import Row

NOT_MEASURED = "not measured"
BESIDE_STOPPED, OTHER_WORK = "†", "‡"
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
    lines = []
    for measured in measured_claim.comparisons:
        planned = measured.planned
        compared = pair_label(planned.column, planned.choice, planned.baseline)
        commands = commands_of(rows_of_pairs(measured.pairs)) or [f"`make studies STUDIES={study_name}`"]
        texts = measured_texts(measured) or ["no rows yet"]
        verdict = verdict_text([measured])
        lines.append(ClaimLine(escape(compared), published_text(planned), texts, verdict, "<br>".join(commands)))
    if claim.not_measured is not None:
        reason = [escape(claim.not_measured)]
        lines.append(ClaimLine("", escape(claim.published or ""), reason, NOT_MEASURED, "-"))
    return lines


def claimed_and_compared(measured_claim: MeasuredClaim, page: str) -> str:
    """The claim in words, linked to its page if it has one, and below it what is compared to test it, as Markdown."""
    labels: dict[str, None] = {}
    for measured in measured_claim.comparisons:
        planned = measured.planned
        labels[pair_label(planned.column, planned.choice, planned.baseline)] = None
    lines = [linked(measured_claim.claim.text, page)]
    if len(labels) <= MAX_SHOWN:
        lines += [f"<sub>{escape(label)}</sub>" for label in labels]
    return "<br>".join(lines)


def linked(text: str, page: str) -> str:
    if not page:
        return escape(text)
    return f"[{escape(text)}]({page})"


def claim_table(result: StudyResult) -> str:
    """The claims of a study: what each source says, and a line for each comparison that tests it."""
    lines = []
    for measured_claim in result.claims:
        claim = measured_claim.claim
        claimed = f"{claim.source}: {escape(claim.text)}"
        for line in claim_lines(measured_claim, result.study.name):
            lines.append([claimed, line.compared, line.published, "<br>".join(line.measured), line.verdict])
            claimed = ""
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
    """A text for each pair, as Markdown: the ratio with its interval, marks, both sides, and under which conditions."""
    texts = []
    for pair in measured.pairs:
        parts = [measured_text(pair) + _marks_text(measured, pair)]
        if pair.ratio is not None:
            parts.append(f"({_side_text(pair, pair.choice_values)} against {_side_text(pair, pair.baseline_values)})")
        condition = condition_text(pair)
        if condition:
            parts.append(f"at {condition}")
        texts.append(escape(" ".join(parts)))
    return texts


def _side_text(pair: PairwiseComparison, values: Sequence[float]) -> str:
    """The median of one side with its unit."""
    value = median(values)
    unit = "ms"
    if pair.column is not None:
        unit = columns(Row)[pair.column].unit
    if unit == "bytes":
        return size(int(value))
    return f"{fixed(value, decimals([value], 4))} {unit}".strip()


def _marks_text(measured: MeasuredComparison, pair: PairwiseComparison) -> str:
    marks = []
    if any(row.beside_stopped_jobs for row in pair.choice_rows + pair.baseline_rows):
        marks.append(BESIDE_STOPPED)
    if measured.other_work:
        marks.append(OTHER_WORK)
    return "".join(f" {mark}" for mark in marks)


def marks_of(text: str) -> str:
    """What the marks mean that a text has, as Markdown; "" without any."""
    return "<br>".join(f"{mark} {meaning}" for mark, meaning in MARKS.items() if mark in text)


def verdict_text(comparisons: Sequence[MeasuredComparison]) -> str:
    """In how many of all pairs what is claimed held, and how many comparisons were not measured."""
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
    """What was measured in one line, as Markdown: each of a few pairs, or from the lowest to the highest."""
    texts: list[str] = []
    ranked = []
    for measured in comparisons:
        texts += measured_texts(measured)
        for pair in measured.pairs:
            if pair.ratio is not None:
                ranked.append((pair.ratio.value, measured_text(pair) + _marks_text(measured, pair)))
    if not texts:
        return NOT_MEASURED
    if len(texts) <= MAX_SHOWN or len(ranked) < 2:
        return "; ".join(texts[:MAX_SHOWN])
    ranked.sort()
    text = f"{ranked[0][1]} to {ranked[-1][1]} in {len(ranked)} comparisons"
    if len(texts) > len(ranked):
        text += f"; {len(texts) - len(ranked)} of fractions"
    return escape(text)


def published_summary(comparisons: Sequence[MeasuredComparison]) -> str:
    """What was published in one line: each of a few figures, or the lowest and the highest ratio."""
    texts = list(dict.fromkeys(published_text(measured.planned) for measured in comparisons))
    if len(texts) <= MAX_SHOWN:
        return "<br>".join(texts)
    ratios = []
    for measured in comparisons:
        published = measured.planned.published
        if published is not None and published.ratio is not None:
            ratios.append(published.ratio)
    if not ratios:
        return "<br>".join(texts)
    return f"{factor(min(ratios))}x to {factor(max(ratios))}x in {len(texts)} comparisons"


def rows_of_pairs(pairs: Iterable[PairwiseComparison]) -> list[Row]:
    rows: list[Row] = []
    for pair in pairs:
        rows += pair.choice_rows + pair.baseline_rows
    return rows


def commands_of(rows: Iterable[Row]) -> list[str]:
    """The commands that measure these rows, as Markdown."""
    commands: dict[str, None] = {}
    for row in rows:
        script = "train.py"
        if row.kind == "forward":
            script = "scripts/bench.py"
        for override in row.overrides:
            if override.startswith("experiment="):
                commands[f"`python {script} -m {override}`"] = None
    return list(commands)
