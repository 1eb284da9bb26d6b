"""The pages of studies, from the rows that were measured."""

from collections.abc import Sequence
from pathlib import Path

from trainkit.analysis.studies import (
    OtherClaim,
    StudyResult,
    evaluate_study,
    read_answers,
    read_other_claims,
    read_study,
)
from trainkit.diagnosis.findings import Diagnosis, read_diagnoses
from trainkit.report.csv_file import csv_comparison
from trainkit.report.plots.claims import SMALL_WIDTH
from trainkit.report.plots.svg import standalone_svg
from trainkit.report.study_index import claims_page, index_page, small_plots
from trainkit.report.study_page import study_page, study_plots
from trainkit.results.runs import read_rows

OTHER_CLAIMS, ANSWERS = "claims.yaml", "answers.yaml"


def write_pages(measurements: Path, experiments: Path, folder: Path) -> list[Path]:
    """Write into `folder` a page `NAME.md` for each study that has rows, its plots and `settings.csv` in `NAME/`, all
    claims in short as `README.md` and figure by figure as `claims.md`. README.md begins with `about.md` if there is
    one.

    The rows of a study are in or below the directory `measurements/NAME`, or of `measurements/NAME.jsonl`
    with `NAME-diagnosis*.json` beside it; claims that no study tests are in `measurements/claims.yaml`, and the answers
    to the studies' questions, which hold for these rows alone, in `measurements/answers.yaml`. Returns the files that
    were written. The same rows give the same text.

    Raises ValueError after the other pages are written. It names each study whose comparison fits several settings, and
    each diagnosis that cannot be read.
    """
    folder.mkdir(parents=True, exist_ok=True)
    other_claims = read_other_claims(measurements / OTHER_CLAIMS)
    answers = read_answers(measurements / ANSWERS)
    written, results, complaints = [], [], []
    for path in sorted(experiments.glob("*.yaml")):
        study = read_study(path)
        rows = read_rows(rows_of(measurements, study.name))
        try:
            result = evaluate_study(study, rows, answers.get(study.name))
            if rows:
                shown = [other for other in other_claims if other.page == f"{study.name}.md"]
                written += _write_page(folder, result, diagnoses_of(measurements, study.name), shown)
            results.append(result)
        except ValueError as error:  # the other studies get their pages
            complaints.append(f"{study.name}: {error}")
    written += _write_index(folder, results, other_claims)
    if complaints:
        raise ValueError("; ".join(complaints))
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


def _write_page(
    folder: Path, result: StudyResult, diagnoses: Sequence[Diagnosis], other_claims: Sequence[OtherClaim]
) -> list[Path]:
    name = result.study.name
    page, plots_dir = folder / f"{name}.md", folder / name
    plots_dir.mkdir(exist_ok=True)
    plots = study_plots(result)
    page.write_text(study_page(result, plots, diagnoses, other_claims), encoding="utf-8")
    figures = plots_dir / "settings.csv"
    figures.write_text(csv_comparison(result.comparison), encoding="utf-8")
    written = [page, figures]
    for file_name, plot in plots.items():
        path = plots_dir / file_name
        path.write_text(standalone_svg(plot.svg), encoding="utf-8")
        written.append(path)
    return written


def _write_index(folder: Path, results: Sequence[StudyResult], other_claims: Sequence[OtherClaim]) -> list[Path]:
    """The pages of all studies, and the small plots of their claims."""
    plots = small_plots(results)
    written = []
    for name, svg in plots.items():
        written.append(folder / name)
        written[-1].write_text(standalone_svg(svg, SMALL_WIDTH), encoding="utf-8")
    about, introduction = folder / "about.md", ""
    if about.exists():
        introduction = about.read_text(encoding="utf-8").strip()
    pages = {
        "claims.md": claims_page(results, other_claims),
        "README.md": index_page(results, other_claims, plots, introduction),
    }
    for name, text in pages.items():
        written.append(folder / name)
        written[-1].write_text(text, encoding="utf-8")
    return written
