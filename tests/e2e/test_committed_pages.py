"""The committed pages and plots are what `make pages` makes of the committed rows."""

import re
from pathlib import Path

import pytest

from tests import forked
from tests.conftest import CONF, ROOT
from trainkit.analysis.studies import read_answers

DOCS = ROOT / "docs"
MEASUREMENTS = ROOT / "measurements"
STUDIES = sorted(path.stem for path in (CONF / "experiment" / "studies").glob("*.yaml"))
ANSWERS = read_answers(MEASUREMENTS / "answers.yaml")
# A number, a ratio with its interval too; not that of a name (H200, GPT-2, ViT-B/16).
FIGURE = re.compile(r"(?<![\w/-])\d(?:[\d.,]*\d)?(?:x(?: \[[^]]+\])?)?")
REPORTS = sorted(rows.stem for rows in MEASUREMENTS.glob("*.jsonl") if (DOCS / rows.stem).is_dir())


def files_in(folder: Path) -> dict[str, str]:
    """The text of every page, plot and table below a folder, by its path in it."""
    texts = {}
    for path in sorted(folder.rglob("*")):
        if path.suffix in (".md", ".svg", ".html", ".csv"):
            texts[str(path.relative_to(folder))] = path.read_text(encoding="utf-8")
    return texts


def test_the_pages_of_the_studies_are_made_of_their_rows(tmp_path):
    folder = tmp_path / "studies"
    folder.mkdir()
    (folder / "about.md").write_text((DOCS / "studies" / "about.md").read_text(encoding="utf-8"), encoding="utf-8")
    done = forked.python(ROOT / "scripts" / "studies.py", MEASUREMENTS, "--into", folder, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    committed = files_in(DOCS / "studies")
    del committed["control/report.md"], committed["stopped_jobs.md"]  # a report, and a page that is written by hand
    assert files_in(folder) == committed


def test_each_study_with_rows_has_an_answer_and_no_other():
    assert sorted(ANSWERS) == [name for name in STUDIES if (DOCS / "studies" / f"{name}.md").exists()]


@pytest.mark.parametrize(("name", "answer"), ANSWERS.items())
def test_the_figures_of_an_answer_stand_on_its_page(name, answer):
    page = (DOCS / "studies" / f"{name}.md").read_text(encoding="utf-8").replace("\\", "")
    assert page.count(answer) == 1
    rest = page.replace(answer, "")
    for figure in FIGURE.findall(answer):
        assert re.search(rf"(?<![\d.,]){re.escape(figure)}(?!\d|[.,]\d)", rest), figure


@pytest.mark.parametrize("name", REPORTS)
def test_a_report_is_made_of_its_rows(name, tmp_path):
    rows, folder = MEASUREMENTS / f"{name}.jsonl", tmp_path / name
    done = forked.python(ROOT / "scripts" / "report.py", rows, "--into", folder, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    made = files_in(folder)
    assert set(made) == {"report.md", "report.html"}
    for path, text in made.items():
        assert text == (DOCS / name / path).read_text(encoding="utf-8")


def test_the_report_of_the_control_is_made_of_its_rows(tmp_path):
    rows = MEASUREMENTS / "control.jsonl"
    done = forked.python(ROOT / "scripts" / "report.py", rows, "--markdown", cwd=tmp_path)
    assert done.stdout == (DOCS / "studies" / "control" / "report.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("page", ["README.md", "docs/guide/quickstart.md"])
def test_a_page_shows_the_first_sweep_as_the_terminal_does(page, tmp_path):
    rows = MEASUREMENTS / "first-sweep.jsonl"
    done = forked.python(ROOT / "scripts" / "report.py", rows, "--into", tmp_path, cwd=tmp_path)
    table, _, _ = done.stdout[done.stdout.index("           speed-up") :].partition("\n  default:")
    assert table in (ROOT / page).read_text(encoding="utf-8")
