"""The page of a study: the answer, the plot, the claims, how it was measured, and folded all figures."""

from collections.abc import Sequence

from trainkit.analysis.comparison import Group
from trainkit.analysis.studies import MeasuredComparison, OtherClaim, StudyResult
from trainkit.diagnosis.findings import Diagnosis
from trainkit.report.claims import (
    claim_table,
    commands_of,
    marks_of,
    summary,
    verdict_text,
)
from trainkit.report.labels import machine_label, pair_label
from trainkit.report.markdown import escape, markdown_comparison, markdown_compiled, markdown_stages
from trainkit.report.pairwise import found_sentence, pairwise_sentences
from trainkit.report.plots.claims import choice_color, claim_marks, plot_claims
from trainkit.report.plots.costs import plot_compile_time
from trainkit.report.plots.palette import Looks, looks_of
from trainkit.report.plots.ratios import plot_dynamic_over, plot_pairs, plot_speedups, plot_speedups_over
from trainkit.report.plots.series import condition_labels, series_of
from trainkit.report.plots.svg import Plot
from trainkit.report.plots.times import plot_times_over

MAX_GROUPS = 3  # with a plot for each
RULE = (
    "A difference is measurable where its interval leaves out 1x and it is larger than what two sets of runs of one "
    "setting differ by chance. A claim of below or above 1x held, or did not, where the difference is measurable. A "
    "claimed number stands for itself and a tenth more or less, a claimed range for itself: the claim held where the "
    "whole interval is in there. A range did not hold where the interval lies outside, by more than chance. Else a "
    "claim held in direction only where the difference is measurable and on the claimed side of 1x; a number did not "
    "hold where it is not, and the interval lies outside, by more than chance. A claim about missed deadlines, or "
    "about a figure that is 0 in all runs of a side, is decided where no run of one side is among those of the other, "
    "three or more each; where all runs of both sides have one figure, there is no difference. Else, and with a single "
    "run, it is undecided. A ratio is one of geometric means over the runs, machine by machine; the figures beside it "
    "are medians of the runs that it is of, so where runs vary the two may point different ways."
)


def study_page(
    result: StudyResult,
    plots: dict[str, Plot],
    diagnoses: Sequence[Diagnosis],
    other_claims: Sequence[OtherClaim],
) -> str:
    """The text of the page; `plots` by file name, the first one unfolded. `other_claims` are those it is evidence for,
    though no comparison tests them."""
    study = result.study
    blocks = [f"# {escape(study.question)}", *_beginning(result)]
    if study.why is not None:
        blocks.append(escape(study.why))
    drawn = [_drawn(study.name, file_name, plot) for file_name, plot in plots.items()]
    blocks += drawn[:1]
    if result.claims or other_claims:
        blocks += ["## Claimed and measured", _with_marks(claim_table(result, other_claims))]
    if result.comparisons:
        blocks += ["## Questions of our own", _with_marks(answers(result.comparisons))]
    blocks += ["## How it was measured", _how(result)]
    if len(drawn) > 1:
        blocks.append(_folded("More plots", drawn[1:]))
    numbers = f"As numbers: [settings.csv]({study.name}/settings.csv)."
    blocks.append(_folded("All that was measured", [numbers, markdown_comparison(result.comparison, of_study=True)]))
    compiled = markdown_compiled(result.rows)
    if compiled:
        blocks.append(_folded("What the compiler did", [compiled]))
    staged = [markdown_stages(diagnosis) for diagnosis in diagnoses if diagnosis.stages]
    if staged:
        blocks.append(_folded("What a first compile goes through", staged))
    return "\n\n".join(blocks) + "\n"


def _beginning(result: StudyResult) -> list[str]:
    """The answer to the question, if it stands beside the rows, and the first claim or comparison that was measured."""
    finding, figures = _first_finding(result)
    if result.answer is not None:
        return [f"**{escape(result.answer)}**", f"{finding} {figures}"]
    if not figures:
        return [finding]
    return [f"**{finding}** {figures}"]


def _first_finding(result: StudyResult) -> tuple[str, str]:
    """The first claim that was measured, or else the first comparison, in a sentence, and its figures."""
    for measured_claim in result.claims:
        if any(measured.pairs for measured in measured_claim.comparisons):
            claim = measured_claim.claim
            first = next(measured for measured in measured_claim.comparisons if measured.pairs)
            verdict = verdict_text(measured_claim.comparisons)
            return f"{claim.source} says: {escape(claim.text)} Measured: {verdict}.", comparison_sentence(first)
    for measured in result.comparisons:
        if measured.pairs:
            return escape(found_sentence(measured.pairs)), comparison_sentence(measured)
    return "Not measured here.", ""


def comparison_sentence(measured: MeasuredComparison) -> str:
    return f"{escape(pair_label(measured.planned))}: {summary([measured])}."


def answers(comparisons: Sequence[MeasuredComparison]) -> str:
    """The answer to each comparison, as a Markdown list."""
    lines = []
    for measured in comparisons:
        sentences = [f"{pair_label(measured.planned)}: not measured."]
        if measured.pairs:
            sentences = pairwise_sentences(measured.pairs)
        lines.append("- " + "\n    - ".join(escape(sentence) for sentence in sentences))
    return "\n".join(lines)


def _drawn(study_name: str, file_name: str, plot: Plot) -> str:
    title = escape(plot.title)
    return f"**{title}**\n\n![{title}]({study_name}/{file_name})\n\n{escape(plot.note)}"


def _folded(title: str, blocks: Sequence[str]) -> str:
    text = "\n\n".join(block.strip() for block in blocks)
    return f'<details markdown="1"><summary>{title}</summary>\n\n{text}\n\n</details>'


def _with_marks(text: str) -> str:
    """A text, and below it the meaning of its marks."""
    return "\n\n".join(filter(None, [text, marks_of(text)]))


def _how(result: StudyResult) -> str:
    """Commands, machines, jobs beside it, works of the sources, gaps, and the rule of the verdicts, as a list."""
    facts = []
    commands = commands_of(result.rows)
    if commands:
        if result.study.also:
            commands.append(f"the same with `{result.study.also}`")
        facts.append(f"Commands: {', '.join(commands)}.")
    for machine in machines(result):
        facts.append(f"Machine: {machine}.")
    num_beside = len([row for row in result.rows if row.beside_stopped_jobs])
    if num_beside:
        facts.append(
            f"{num_beside} of {len(result.rows)} runs were measured beside [stopped jobs](stopped_jobs.md); the tables "
            "below say of which settings."
        )
    works = [f"{claim.source}: {claim.work}" for claim in result.study.claims if claim.work]
    if works:
        facts.append(f"What the claims are judged by: {escape('; '.join(dict.fromkeys(works)))}.")
    for subject, reason in result.study.not_measured.items():
        facts.append(f"Not measured: {escape(subject)}: {escape(reason)}.")
    if result.claims:
        facts.append(RULE)
    return "\n".join(f"- {fact}" for fact in facts)


def machines(result: StudyResult) -> list[str]:
    labels = [escape(machine_label(group.machine)) for group in result.comparison.groups]
    return list(dict.fromkeys(labels))


def study_plots(result: StudyResult) -> dict[str, Plot]:
    """The plots of a study by file name, the answer to its question first.

    A study that sweeps a number has series over it, and its claims. Any other has its claims, the settings of a few
    groups, with their compile times if the study compares those, and its pairwise comparisons.
    """
    groups = [group for group in result.comparison.groups if len(group.candidates) > 1]
    looks = looks_of(groups)
    plots = []
    for number, series in enumerate(series_of(groups)):
        plots.append(plot_times_over(series, looks, f"times{number}"))
        plots.append(plot_speedups_over(series, looks, f"series{number}"))
        plots.append(plot_dynamic_over(series, looks, f"dynamic{number}"))
    has_series = bool(plots)
    tested: list[MeasuredComparison] = []
    for claim in result.claims:
        tested += claim.comparisons
    plots += _fraction_plots(tested, groups, looks)
    plots.append(plot_claims(claim_marks(tested, groups, looks), "claims"))
    if not has_series:
        if len(groups) <= MAX_GROUPS:
            plots += _group_plots(result, groups, looks)
        for number, measured in enumerate(result.comparisons):
            if len(measured.pairs) > 1:
                color = choice_color(measured, groups, looks)
                plots.append(plot_pairs(measured.pairs, f"contrast{number}", color))
    drawn: dict[str, Plot] = {}
    for plot in plots:
        if plot is not None:
            drawn[f"plot{len(drawn)}.svg"] = plot
    return drawn


def _fraction_plots(tested: Sequence[MeasuredComparison], groups: Sequence[Group], looks: Looks) -> list[Plot | None]:
    """The comparisons of fractions, which have no ratio that the plot of claims could show."""
    plots = []
    for number, measured in enumerate(tested):
        if any(pair.of_fraction for pair in measured.pairs):
            plots.append(plot_pairs(measured.pairs, f"fraction{number}", choice_color(measured, groups, looks)))
    return plots


def _group_plots(result: StudyResult, groups: Sequence[Group], looks: Looks) -> list[Plot | None]:
    compares_compiling = False
    for measured in result.all_comparisons:
        column = measured.planned.column
        if column is not None and column.startswith("compile_"):
            compares_compiling = True
    plots = []
    for number, (group, condition) in enumerate(zip(groups, condition_labels(groups), strict=True)):
        plots.append(plot_speedups(group, looks, f"speedup{number}", condition))
        if compares_compiling:
            plots.append(plot_compile_time(group, f"compile{number}", condition))
    return plots
