"""The pages of all studies: each claim in a line with its verdict, and each figure in a table."""

from collections.abc import Sequence
from dataclasses import dataclass

from trainkit.analysis.studies import OtherClaim, StudyResult
from trainkit.report.claims import (
    NOT_MEASURED,
    claim_lines,
    claimed_and_compared,
    linked,
    marks_of,
    published_summary,
    summary,
    verdict_text,
)
from trainkit.report.markdown import escape, text_table
from trainkit.report.plots.claims import claim_marks, plot_claims_small, plot_fractions_small
from trainkit.report.plots.palette import looks_of
from trainkit.report.study_page import RULE, comparison_sentence, machines


@dataclass(frozen=True)
class _Line:
    """A line of a table, under its source."""

    source: str
    cells: list[str]


def small_plots(results: Sequence[StudyResult]) -> dict[str, str]:
    """The small plot of each claim that has one, by its path: `modes/claim0.svg`."""
    drawn = {}
    for result in results:
        groups = result.comparison.groups
        looks = looks_of(groups)
        for number, measured in enumerate(result.claims):
            marks, name = claim_marks(measured.comparisons, groups, looks), f"claim{number}"
            svg = plot_claims_small(marks, name) or plot_fractions_small(measured.comparisons, name)
            if svg is not None:
                drawn[_plot_path(result, number)] = svg
    return drawn


def _plot_path(result: StudyResult, number: int) -> str:
    return f"{result.study.name}/claim{number}.svg"


def index_page(
    results: Sequence[StudyResult], other_claims: Sequence[OtherClaim], plots: dict[str, str], introduction: str
) -> str:
    """Each claim in a line, the questions of our own, and the claims that are not measured."""
    blocks = ["# Studies"]
    if introduction:
        blocks.append(introduction)
    labels: dict[str, None] = {}
    for result in results:
        labels |= dict.fromkeys(machines(result))
    if labels:
        blocks.append("Measured on:\n\n" + "\n".join(f"- {label}" for label in labels))
    blocks += ["## Claimed, measured, held?", _claims_index(results, other_claims, plots)]
    blocks += ["## Questions of our own", _questions(results)]
    unmeasured = _unmeasured(results, other_claims)
    if unmeasured:
        blocks += ["## Not measured", "\n".join(unmeasured)]
    return "\n\n".join(blocks) + "\n"


def _claims_index(results: Sequence[StudyResult], other_claims: Sequence[OtherClaim], plots: dict[str, str]) -> str:
    """A line for each claim that was measured, by source."""
    lines = []
    for result in results:
        for number, measured in enumerate(result.claims):
            verdict = verdict_text(measured.comparisons)
            if verdict == NOT_MEASURED:
                continue
            path = _plot_path(result, number)
            plot = f"![]({path})" if path in plots else ""
            published = published_summary(measured)
            cells = [claimed_and_compared(measured, _page(result)), published, summary(measured.comparisons), plot]
            lines.append(_Line(measured.claim.source, [*cells, f"**{verdict}**"]))
    for other in other_claims:
        if other.verdict != NOT_MEASURED:
            plot = f"[plot]({other.plot})" if other.plot else ""
            cells = [linked(other.claim, other.page), escape(other.published), escape(other.measured), plot]
            lines.append(_Line(other.source, [*cells, f"**{other.verdict}**"]))
    lines.sort(key=lambda line: line.source)
    titles = ["source", "claimed", "published", "measured", "plot", "held?"]
    table = text_table(titles, [[line.source, *line.cells] for line in lines])
    legend = (
        "*published* has the figures of the source, and what is tested of them. *measured* has a ratio with its 95 % "
        "interval, and in brackets the medians of both sides: the ratio is that of geometric means, so with runs far "
        "apart it is not that of the medians. The small plots have one line for each comparison, on one scale: the "
        "interval that was measured, and a diamond for the ratio that was published; for fractions both sides in "
        "percent, from the lowest run to the highest, the second in grey. *held in direction only*: measurably on the "
        "claimed side of 1x, but not near the claimed figure, and often far less, or far more. *no difference*: all "
        "runs of both sides have one figure. *undecided*: it may be chance. Each study's page has the whole rule. "
        "[Figure by figure, with the commands](claims.md)."
    )
    return "\n\n".join(filter(None, [table, marks_of(table), legend]))


def _page(result: StudyResult) -> str:
    """The page of a study, "" if it has no rows and so none."""
    if not result.rows:
        return ""
    return f"{result.study.name}.md"


def _questions(results: Sequence[StudyResult]) -> str:
    """The question of each study that compares something of its own, and its answer, or else the first of these
    comparisons that was measured."""
    lines = []
    for result in results:
        measured = next((comparison for comparison in result.comparisons if comparison.pairs), None)
        if measured is None:
            continue
        text = comparison_sentence(measured) if result.answer is None else escape(result.answer)
        lines.append(f"- [{escape(result.study.question)}]({result.study.name}.md) {text}")
    return "\n".join(lines)


def _unmeasured(results: Sequence[StudyResult], other_claims: Sequence[OtherClaim]) -> list[str]:
    """Each claim that is not measured, by source, and each further subject, with the reason, as lines of a list."""
    lines, subjects = [], []
    for result in results:
        study = result.study
        no_rows = f"no rows yet; `make studies STUDIES={study.name}` measures it"
        for measured in result.claims:
            if verdict_text(measured.comparisons) == NOT_MEASURED:
                reason = no_rows
                if measured.claim.not_measured is not None:
                    reason = escape(measured.claim.not_measured)
                lines.append(_Line(measured.claim.source, [measured.claim.text, f"({reason})"]))
        if not result.rows and not result.claims:
            subjects.append(f"- {escape(study.question)} ({no_rows})")
        for subject, subject_reason in study.not_measured.items():
            subjects.append(f"- {linked(study.name, _page(result))}, {escape(subject)}: {escape(subject_reason)}")
    for other in other_claims:
        if other.verdict == NOT_MEASURED:
            lines.append(_Line(other.source, [other.claim, f"({escape(other.measured)})"]))
    lines.sort(key=lambda line: line.source)
    return [f"- {line.source}: {escape(line.cells[0])} {line.cells[1]}" for line in lines] + subjects


def claims_page(results: Sequence[StudyResult], other_claims: Sequence[OtherClaim]) -> str:
    """Every published figure, in a table for each source."""
    lines = []
    for result in results:
        page = linked(result.study.name, _page(result))
        for measured in result.claims:
            text = escape(measured.claim.text)
            for tested in claim_lines(measured, result.study.name):
                claimed = "<br>".join(filter(None, [text, tested.compared]))
                cells = [claimed, tested.published, "<br>".join(tested.measured), tested.verdict]
                lines.append(_Line(measured.claim.source, [*cells, f"{tested.command}<br>{page}"]))
                text = ""
    for other in other_claims:
        cells = [escape(other.claim), escape(other.published), escape(other.measured), other.verdict]
        command = f"`{other.command}`" if other.command else "-"
        page = linked(other.page.rpartition("/")[2], other.page)
        lines.append(_Line(other.source, [*cells, "<br>".join(filter(None, [command, page]))]))
    by_source: dict[str, list[list[str]]] = {}
    for line in sorted(lines, key=lambda line: line.source):
        by_source.setdefault(line.source, []).append(line.cells)
    blocks = ["# The tutorials' figures, one by one"]
    for source, cells_of_source in by_source.items():
        blocks.append(f"## {source}")
        blocks.append(text_table(["claimed", "published", "measured", "held?", "command, page"], cells_of_source))
    marks = marks_of("\n".join(blocks))
    return "\n\n".join(filter(None, [*blocks, marks, RULE])) + "\n"
