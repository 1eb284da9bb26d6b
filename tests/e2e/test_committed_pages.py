"""The committed pages and plots are what `make pages` makes of the committed rows."""

from pathlib import Path

import pytest

from tests import forked
from tests.conftest import ROOT

DOCS = ROOT / "docs"
MEASUREMENTS = ROOT / "measurements"
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
