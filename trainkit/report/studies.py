"""The pages of studies, and their index, from the rows that were measured."""

from collections.abc import Sequence
from pathlib import Path

from trainkit.analysis.comparison import Group
from trainkit.analysis.studies import MeasuredComparison, StudyResult, evaluate_study, read_study
from trainkit.diagnosis.findings import Diagnosis, read_diagnoses
from trainkit.report.csv_file import csv_comparison
from trainkit.report.labels import machine_label, pair_label
from trainkit.report.markdown import escape, markdown_comparison, markdown_compiled, markdown_stages
from trainkit.report.pairwise import claim_sentence, pairwise_sentences
from trainkit.report.plots.costs import plot_compile_time
from trainkit.report.plots.palette import Looks, looks_of
from trainkit.report.plots.ratios import plot_dynamic_over, plot_pairs, plot_speedups, plot_speedups_over
from trainkit.report.plots.series import condition_labels, series_of
from trainkit.report.plots.svg import Plot, standalone_svg
from trainkit.report.plots.times import plot_times_over
from trainkit.results.runs import read_rows

MAX_GROUPS = 3  # with a plot for each
RULE = (
    "A difference is measurable where its interval leaves out 1x and it is larger than what two sets of runs of one "
    "setting differ by chance. A claim of below or above 1x held, or did not, where the difference is measurable; one "
    "of `about`, where all of the interval is within a tenth of the number, or nothing of it is, by more than chance; "
    "one of missed deadlines, where no run of one side is among those of the other, three or more each. Else, and with "
    "a single run, it is undecided."
)


def write_pages(measurements: Path, experiments: Path, folder: Path) -> list[Path]:
    """Write into `folder` a page `NAME.md` for each study that has rows, its plots and `settings.csv` in `NAME/`, and
    an index as `README.md`. The index begins with `about.md` if there is one: it says how the rows were obtained.

    The rows of a study are in or below the directory `measurements/NAME`, or of `measurements/NAME.jsonl`
    with `NAME-diagnosis*.json` beside it. Returns the files that were written. The same rows give the same text.

    Raises ValueError after the other pages are written. It names each study whose comparison fits several settings, and
    each diagnosis that cannot be read.
    """
    folder.mkdir(parents=True, exist_ok=True)
    written, results, complaints = [], [], []
    for path in sorted(experiments.glob("*.yaml")):
        study = read_study(path)
        rows = read_rows(rows_of(measurements, study.name))
        try:
            result = evaluate_study(study, rows)
            if rows:
                written += _write_page(folder, result, diagnoses_of(measurements, study.name))
            results.append(result)
        except ValueError as error:  # the other studies get their pages
            complaints.append(f"{study.name}: {error}")
    index, about = folder / "README.md", folder / "about.md"
    introduction = ""
    if about.exists():
        introduction = about.read_text(encoding="utf-8").strip()
    index.write_text(_index(results, introduction), encoding="utf-8")
    if complaints:
        raise ValueError("; ".join(complaints))
    written.append(index)
    return written


def rows_of(measurements: Path, name: str) -> Path:
    """The file or the directory that has the rows of a study."""
    packed = measurements / f"{name}.jsonl"
    if packed.exists():
        return packed
    return measurements / name


def diagnoses_of(measurements: Path, name: str) -> list[Diagnosis]:
    """The diagnoses that belong to a study. Raises ValueError for a file that is none."""
    rows = rows_of(measurements, name)
    if rows.is_dir():
        diagnoses, complaints = read_diagnoses(rows)
    else:
        diagnoses, complaints = read_diagnoses(measurements, f"{name}-diagnosis*.json")
    if complaints:
        raise ValueError("; ".join(complaints))
    return diagnoses


def _write_page(folder: Path, result: StudyResult, diagnoses: Sequence[Diagnosis]) -> list[Path]:
    name = result.study.name
    page, plots_dir = folder / f"{name}.md", folder / name
    plots_dir.mkdir(exist_ok=True)
    plots = _plots(result)
    page.write_text(_study_page(result, plots, diagnoses), encoding="utf-8")
    figures = plots_dir / "settings.csv"
    figures.write_text(csv_comparison(result.comparison), encoding="utf-8")
    written = [page, figures]
    for file_name, plot in plots.items():
        path = plots_dir / file_name
        path.write_text(standalone_svg(plot.svg), encoding="utf-8")
        written.append(path)
    return written


def _study_page(result: StudyResult, plots: dict[str, Plot], diagnoses: Sequence[Diagnosis]) -> str:
    """Question, claims and answers, the plots, all settings as tables, and the stages of a compile if a diagnosis has
    them."""
    study = result.study
    blocks = [f"# {escape(study.question)}", *_claims(result), _own(result)]
    if study.why is not None:
        blocks.append(escape(study.why))
    for subject, reason in study.not_measured.items():
        blocks.append(f"Not measured: {escape(subject)}: {escape(reason)}")
    if study.claims:
        blocks.append(RULE)
    machines = [f"- {machine}" for machine in _machines(result)]
    if machines:
        blocks.append("On:\n\n" + "\n".join(machines))
    for file_name, plot in plots.items():
        title = escape(plot.title)
        blocks += [f"**{title}**", f"![{title}]({study.name}/{file_name})", escape(plot.note)]
    blocks += ["## All that was measured", f"As numbers: [settings.csv]({study.name}/settings.csv)."]
    blocks.append(markdown_comparison(result.comparison))
    blocks += ["## What the compiler did", markdown_compiled(result.rows)]
    staged = [diagnosis for diagnosis in diagnoses if diagnosis.stages]
    if staged:
        blocks.append("## What a first compile goes through")
    for diagnosis in staged:
        blocks.append(markdown_stages(diagnosis))
    return "\n\n".join(blocks)


def _claims(result: StudyResult) -> list[str]:
    """Each claim with its source, and what was measured of it."""
    blocks = []
    for measured in result.claims:
        claim = measured.claim
        blocks.append(f"Claimed ({claim.source}): {escape(claim.text)}")
        if claim.not_measured is not None:
            blocks.append(f"Not measured: {escape(claim.not_measured)}")
        if measured.comparisons:
            blocks.append(_answers(measured.comparisons))
    return blocks


def _own(result: StudyResult) -> str:
    """The answer to each comparison of the study's own, under a line with the commands that measured it."""
    commands: dict[str, None] = {}
    for row in result.rows:
        script = "train.py"
        if row.kind == "forward":
            script = "scripts/bench.py"
        for override in row.overrides:
            if override.startswith("experiment="):
                commands[f"`python {script} -m {override}`"] = None
    heading = "Measured:"
    if commands:
        heading = f"Measured ({', '.join(commands)}):"
    return f"{heading}\n\n{_answers(result.comparisons)}"


def _machines(result: StudyResult) -> list[str]:
    machines: dict[str, None] = {}
    for group in result.comparison.groups:
        machines[escape(machine_label(group.machine))] = None
    return list(machines)


def _answers(comparisons: Sequence[MeasuredComparison]) -> str:
    """The answer to each comparison, as a Markdown list."""
    answers = []
    for measured in comparisons:
        answers.append("- " + "\n  - ".join(escape(sentence) for sentence in _sentences(measured)))
    return "\n".join(answers)


def _sentences(measured: MeasuredComparison) -> list[str]:
    planned, pairs = measured.planned, measured.pairs
    if not pairs:
        return [f"{pair_label(planned.column, planned.choice, planned.baseline)}: not measured."]
    sentences = pairwise_sentences(pairs)
    if planned.claimed is None:
        return sentences
    judgement = claim_sentence(planned.claimed, pairs)
    if measured.other_work:
        judgement += " At other work than the source's."
    if len(sentences) == 1:
        return [f"{sentences[0]} {judgement}"]
    return sentences + [judgement]


def _index(results: Sequence[StudyResult], introduction: str) -> str:
    blocks = ["# Studies"]
    if introduction:
        blocks.append(introduction)
    machines: dict[str, None] = {}
    for result in results:
        machines |= dict.fromkeys(_machines(result))
    if len(machines) == 1:
        blocks.append(f"Measured on {next(iter(machines))}.")
    for result in results:
        blocks += _entry(result, with_machines=len(machines) > 1)
    return "\n\n".join(blocks) + "\n"


def _entry(result: StudyResult, with_machines: bool) -> list[str]:
    """The blocks of a study in the index: its claims, or the first comparison of a study without any."""
    title = escape(result.study.question)
    if not result.rows:
        return [f"## {title}", "Not measured here."]
    blocks = [f"## [{title}]({result.study.name}.md)"]
    if with_machines:
        blocks.append(f"Measured on {' and '.join(_machines(result))}:")
    if result.claims:
        return blocks + _claims(result)
    return [*blocks, _answers(result.comparisons[:1])]


def _plots(result: StudyResult) -> dict[str, Plot]:
    """The plots of a study by file name.

    A study that sweeps a number has series over it. Any other has the settings of a few groups, with their compile
    times if the study compares those, and its pairwise comparisons.
    """
    groups = [group for group in result.comparison.groups if len(group.candidates) > 1]
    looks = looks_of(groups)
    plots = []
    for number, series in enumerate(series_of(groups)):
        plots.append(plot_times_over(series, looks, f"times{number}"))
        plots.append(plot_speedups_over(series, looks, f"series{number}"))
        plots.append(plot_dynamic_over(series, looks, f"dynamic{number}"))
    if not plots:
        if len(groups) <= MAX_GROUPS:
            plots += _group_plots(result, groups, looks)
        for number, measured in enumerate(result.all_comparisons):
            if len(measured.pairs) > 1:
                plots.append(plot_pairs(measured.pairs, f"contrast{number}"))
    drawn: dict[str, Plot] = {}
    for plot in plots:
        if plot is not None:
            drawn[f"plot{len(drawn)}.svg"] = plot
    return drawn


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
