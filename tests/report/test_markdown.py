"""The comparison and the work of the compiler as Markdown."""

from dataclasses import replace

import pytest

from tests.sweeps import GPU, MIB, five_modes, make_row
from trainkit.analysis.comparison import compare
from trainkit.report.markdown import markdown_comparison
from trainkit.results.facts import Stage


def test_markdown_has_a_table_for_each_group_and_a_list_of_what_was_dropped(snapshot):
    assert markdown_comparison(compare([*five_modes(), make_row("eager", 3.0, model="simple_cnn")])) == snapshot


def test_markdown_of_names_and_errors_is_escaped():
    rows = [
        make_row("eager", 2.0, overrides=["a=x|y"]),
        make_row("eager", 2.0, overrides=["a=<b>"]),
        make_row("default", None, status="failed", error="`a` | *b* <script>\nmore"),
    ]
    text = markdown_comparison(compare(rows))
    assert "One run only of every setting" in text
    assert "One run only of a=\\<b\\>: " in markdown_comparison(compare([*rows, rows[0]]))
    assert "| a=x\\|y |" in text
    assert "| a=\\<b\\> |" in text
    assert "\\`a\\` \\| \\*b\\* \\<script\\>" in text
    assert "more" not in text.split("Dropped")[1]


CALL = replace(
    GPU, kind="forward", run_id="call", compile_mode="default", effective_mode="default", step_time_ms_p50=4.0
)


def header(text: str) -> list[str]:
    """The titles of the first table."""
    return next(line for line in text.splitlines() if line.startswith("| setting")).strip("| ").split(" | ")


@pytest.mark.parametrize(("mode", "titles"), [("eager", ["setting", "step ms"]), ("default", ["setting", "compile s"])])
def test_a_study_has_no_speed_ups_where_there_is_nothing_to_compare(mode, titles):
    rows = [make_row(mode, ms, effective_mode=mode) for ms in (3.0, 3.1, 3.2)]
    page = markdown_comparison(compare(rows), of_study=True)
    assert header(page)[:2] == titles
    assert "No advice" not in page
    assert f"- {mode}" not in page
    report = markdown_comparison(compare(rows))
    assert header(report)[:3] == ["setting", "speed-up over eager", "compile s"]
    assert "**No advice: " in report


def test_programs_in_files_have_their_first_answer_and_the_size_of_the_file():
    package = replace(CALL, engine="aot_inductor", package_bytes=91 * MIB, first_answer_s=0.2)
    rows = [replace(CALL, first_answer_s=8.8), package]
    page = markdown_comparison(compare(rows))
    first = header(page).index("first answer s")
    assert header(page)[first + 1] == "file MiB"
    cells = [line.strip("| ").split(" | ")[first : first + 2] for line in page.splitlines() if "| default, e" in line]
    assert sorted(cells) == [["0.200", "91.0"], ["8.800", "-"]]
    assert "first answer s" not in markdown_comparison(compare(rows[:1]))


def test_the_latency_of_a_cascade_is_no_median():
    rows = [CALL, replace(CALL, fallback=["model=simple_net"], chain=[Stage("", "default"), Stage("x", "default")])]
    assert "latency, mean of the stages' medians, ms" in header(markdown_comparison(compare(rows)))
    assert "latency ms" in header(markdown_comparison(compare(rows[:1])))


def test_a_heading_names_tf32():
    single = make_row("eager", 4.0, precision="32-true", matmul_precision="high", accelerator="gpu")
    half = replace(single, precision="bf16-mixed")

    def heading(*rows) -> str:
        return markdown_comparison(compare(rows)).partition("**<br>")[0]

    assert heading(single) == "**resnet18 on synthetic, batch 64, 32-true, TF32"
    assert heading(single, half) == "**resnet18 on synthetic, batch 64, 32-true in TF32, eager"
    assert "TF32" not in heading(half)
    assert "TF32" not in heading(replace(single, matmul_precision="highest"))
    assert "TF32" not in heading(replace(single, accelerator="cpu"))
