"""The page of a race: the advice, all that was tried, the rounds with their intervals, and the effects."""

from collections.abc import Sequence

from trainkit.analysis.advice import Advice, Round
from trainkit.report.advice import HEADINGS, advice_notes, advice_sentence, best_first, bounds_text, tried_cells
from trainkit.report.page import template_environment
from trainkit.report.plots.palette import COLORS
from trainkit.report.plots.races import plot_race


def html_advice(advice: Advice, title: str) -> str:
    """The page. It loads nothing and runs no script; the same advice gives the same text."""
    ordered = best_first(advice.tried)
    plot = plot_race(advice.rounds, ordered, "race")
    template = template_environment().get_template("race.html")
    return template.render(
        title=title,
        colors=COLORS,
        sentence=advice_sentence(advice),
        notes=list(advice_notes(advice)),
        plots=[plot] if plot is not None else [],
        headings=HEADINGS,
        lines=[tried_cells(tried) for tried in ordered],
        round_headings=["settings", *[shown.name for shown in advice.rounds]],
        round_lines=[_round_line(tried.label, advice.rounds) for tried in ordered],
        excluded={tried.label: tried.reason for tried in ordered if tried.reason},
        not_tried=[*advice.not_tried, *advice.left_out],
    )


def _round_line(label: str, rounds: Sequence[Round]) -> list[str]:
    cells = [label]
    before: Round | None = None
    for shown in rounds:
        cells.append(_round_cell(label, shown, before))
        before = shown
    return cells


def _round_cell(label: str, shown: Round, before: Round | None) -> str:
    """What a round knew of an arm: its interval, and whether that eliminated it, or something else."""
    if label in shown.excluded:
        return "excluded"
    interval = shown.intervals.get(label)
    if interval is None:
        return ""
    if label == shown.leader:
        return "leads"
    if interval[0] == 0:  # nothing tells how far the figures scatter
        return "-"
    if label not in shown.eliminated:
        return bounds_text(interval)
    if before is not None and label in before.eliminated:
        return "out"
    return f"out: {bounds_text(interval)}"
