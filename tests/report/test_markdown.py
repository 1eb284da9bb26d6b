"""The comparison and the work of the compiler as Markdown."""

from tests.sweeps import five_modes, make_row
from trainkit.analysis.comparison import compare
from trainkit.report.markdown import markdown_comparison


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
