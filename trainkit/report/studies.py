"""A study: one question, the sweep that answers it, and the page that its rows make.

The question, what was claimed elsewhere and which settings are compared with which stand in the head of the experiment
that runs it, `conf/experiment/studies/NAME.yaml`, in lines `# Question: ...`, `# Claimed: ...` and, one or more,
`# Measured: [field of a row of] SETTINGS over SETTINGS[; claimed below 1 | above 1 | about NUMBER]`; a line that starts
with `#   ` goes on with the last one. In the index the first comparison that was measured answers the question; those
before it are said to be missing.
"""

from collections.abc import Sequence
from pathlib import Path

from trainkit.analysis.pairs import PairwiseComparison
from trainkit.analysis.studies import PlannedComparison, StudyResult, evaluate_study, read_study
from trainkit.diagnosis.findings import Diagnosis, read_diagnoses
from trainkit.report.labels import contrast_of, machine_of
from trainkit.report.pairwise import claim_sentence, pairwise_sentences
from trainkit.report.plots import Plot, apart, compile_cost, contrast, looks_of, series_of, speedups, speedups_over
from trainkit.report.svg import file_of
from trainkit.report.tables import escape, markdown_comparison, markdown_compiled, markdown_stages
from trainkit.results.runs import read_rows

MOST_GROUPS = 3  # with a plot for each
RULE = (
    "A difference is measurable where its interval leaves out 1x and it is larger than what two sets of runs of one "
    "setting differ by chance. A claim of below or above 1x held, or did not, where the difference is measurable; one "
    "of `about`, where all of the interval is within a tenth of the number, or nothing of it is, by more than chance; "
    "one of missed deadlines, where no run of one side is among those of the other, three or more each. Else, and with "
    "a single run, it is undecided."
)


def write_pages(measurements: Path, experiments: Path, folder: Path) -> list[Path]:
    """Write into `folder` a page `NAME.md` for each study that has rows, its plots in `NAME/`, and an index as
    `README.md`. The index begins with `about.md` if there is one: it says how the rows were obtained.

    The rows of a study are in or below the directory `measurements/NAME`, or of `measurements/NAME.jsonl`
    with `NAME-diagnosis*.json` beside it. Returns the files that were written. The same rows give the same text.

    Raises ValueError after the other pages are written. It names each study whose comparison fits several settings, and
    each diagnosis that cannot be read.
    """
    folder.mkdir(parents=True, exist_ok=True)
    written, answered, complaints = [], [], []
    for path in sorted(experiments.glob("*.yaml")):
        study = read_study(path)
        rows = read_rows(rows_of(measurements, study.name))
        try:
            answer = evaluate_study(study, rows)
            written += _write_page(folder, answer, diagnoses_of(measurements, study.name)) if rows else []
            answered.append(answer)
        except ValueError as error:  # of one study; the others get their pages
            complaints.append(f"{study.name}: {error}")
    machines = list(dict.fromkeys(machine for answer in answered for machine in _machines(answer)))
    entries = [f"Measured on {machines[0]}."] if len(machines) == 1 else []
    entries += [_entry(answer, _machines(answer) if len(machines) > 1 else []) for answer in answered]
    index, about = folder / "README.md", folder / "about.md"
    said = [about.read_text(encoding="utf-8").strip()] if about.exists() else []
    index.write_text("\n\n".join(["# Studies", *said, *entries]) + "\n", encoding="utf-8")
    if complaints:
        raise ValueError("; ".join(complaints))
    return [*written, index]


def _machines(answer: StudyResult) -> list[str]:
    return list(dict.fromkeys(escape(machine_of(group.machine)) for group in answer.comparison.groups))


def _lines(answer: StudyResult) -> list[str]:
    """Of each of what it measures what it came to, as Markdown."""
    return [
        "\n".join(f"{'  ' * bool(number)}- {escape(line)}" for number, line in enumerate(_said(asked, pairs)))
        for asked, pairs in zip(answer.study.comparisons, answer.pairs, strict=True)
    ]


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


def _write_page(folder: Path, answer: StudyResult, diagnoses: Sequence[Diagnosis]) -> list[Path]:
    plots = _plots(answer)
    plots_dir = folder / answer.study.name
    plots_dir.mkdir(exist_ok=True)
    for name, plot in plots.items():
        (plots_dir / name).write_text(file_of(plot.svg), encoding="utf-8")
    page = folder / f"{answer.study.name}.md"
    page.write_text(page_of(answer, plots, diagnoses), encoding="utf-8")
    return [page, *(plots_dir / name for name in plots)]


def page_of(answer: StudyResult, plots: dict[str, Plot], diagnoses: Sequence[Diagnosis] = ()) -> str:
    """The page: question, claim, what was measured, the plots (by the names of their files), all settings as tables,
    and the stages of a compile from each diagnosis that has them."""
    figures = [
        f"**{escape(plot.title)}**\n\n![{escape(plot.title)}]({answer.study.name}/{name})\n\n{escape(plot.note)}"
        for name, plot in plots.items()
    ]
    blocks = [f"# {escape(answer.study.question)}", *_answered(answer), *figures, "## All that was measured"]
    blocks += [markdown_comparison(answer.comparison), "## What the compiler did", markdown_compiled(answer.rows)]
    staged = [markdown_stages(diagnosis) for diagnosis in diagnoses if diagnosis.stages]
    return "\n\n".join(blocks + (["## What a first compile goes through", *staged] if staged else []))


def _entry(answer: StudyResult, machines: list[str]) -> str:
    study, lines = answer.study, _lines(answer)
    title, claim = escape(study.question), f"Claimed: {escape(study.claimed)}"
    if not answer.rows:
        return "\n\n".join([f"## {title}", claim, "Not measured here."])
    on = f" on {' and '.join(machines)}" if machines else ""
    first = next((number for number, pairs in enumerate(answer.pairs) if pairs), 0)
    shown = lines[: first + 1]
    if study.comparisons[first].claim is None:
        told = zip(lines, study.comparisons, answer.pairs, strict=True)
        shown += [line for line, asked, pairs in told if asked.claim is not None and pairs]
    return "\n\n".join([f"## [{title}]({study.name}.md)", claim, f"Measured{on}:", "\n".join(shown)])


def _said(asked: PlannedComparison, pairs: list[PairwiseComparison]) -> list[str]:
    if not pairs:
        return [f"{contrast_of(asked.column, asked.choice, asked.baseline)}: not measured."]
    lines = pairwise_sentences(pairs)
    if asked.claim is None:
        return lines
    held = claim_sentence(asked.claim, pairs)
    return [*lines, held] if len(lines) > 1 else [f"{lines[0]} {held}"]


def _answered(answer: StudyResult) -> list[str]:
    where = "\n".join(f"- {machine}" for machine in _machines(answer))
    # The size that ran: a study's own, or its small one.
    ran = dict.fromkeys(
        f"{'scripts/bench.py' if row.kind == 'forward' else 'train.py'} -m {word}"
        for row in answer.rows
        for word in row.overrides
        if word.startswith("experiment=")
    )
    again = ", ".join(f"`python {words}`" for words in ran)
    measured = "\n".join(_lines(answer))
    blocks = [f"Claimed: {escape(answer.study.claimed)}", f"Measured{f' ({again})' if ran else ''}:\n\n{measured}"]
    blocks += [RULE] if any(asked.claim for asked in answer.study.comparisons) else []
    return [*blocks, f"On:\n\n{where}"] if where else blocks


def _plots(answer: StudyResult) -> dict[str, Plot]:
    """Over a number where the study sweeps one; else the settings of a few groups, with the time that they compile for
    where the study asks for it, and what is compared across them."""
    groups = [group for group in answer.comparison.groups if len(group.candidates) > 1]
    looks = looks_of(groups)
    drawn = [speedups_over(series, looks, f"series{n}") for n, series in enumerate(series_of(groups))]
    if not drawn:
        few = groups if len(groups) <= MOST_GROUPS else []
        costs = any((asked.column or "").startswith("compile_") for asked in answer.study.comparisons)
        for n, (group, beside) in enumerate(zip(few, apart(few), strict=True)):
            drawn += [speedups(group, looks, f"speedup{n}", beside)]
            drawn += [compile_cost(group, f"compile{n}", beside)] if costs else []
        drawn += [contrast(pairs, f"contrast{n}") for n, pairs in enumerate(answer.pairs) if len(pairs) > 1]
    return {f"plot{n}.svg": plot for n, plot in enumerate(plot for plot in drawn if plot is not None)}
