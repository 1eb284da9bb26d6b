"""Rows of any content are compared or left out, and never end a report."""

import json
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory

import hypothesis.strategies as st
from hypothesis import given

from tests.faults.campaign import Outcomes, tries
from tests.sweeps import gpu_sweep
from trainkit.analysis.comparison import compare
from trainkit.report.markdown import markdown_comparison
from trainkit.results.row import Row
from trainkit.results.runs import read_runs

ROWS = [asdict(row) for row in gpu_sweep(1)[:3]]
ANYTHING = st.one_of(
    st.sampled_from([0, -1, 1, 2**62, 2**70, 0.0, -0.0, 1e-308, 1e18, 1e300, float("nan"), float("inf"), None, True]),
    st.sampled_from(["", "a\nb\x1b[31m", "x" * 5_000, "<script>", "|`", [], {}, ["a"] * 5_000, [[[[]]]], {"a": {}}]),
    st.text(max_size=20),
)
changes = st.dictionaries(st.sampled_from(sorted(Row.__dataclass_fields__)), ANYTHING, min_size=1, max_size=3)
outcomes = Outcomes("hostile rows")


@tries(limit_min=3, short=25, whole=500)
@given(changed=changes)
def compare_or_leave_out(changed):
    with TemporaryDirectory() as folder:
        for number, values in enumerate(ROWS):
            run_dir = Path(folder, str(number))
            run_dir.mkdir()
            content = values | changed if number == 0 else values
            (run_dir / "row.json").write_text(json.dumps(content))
        complaints: list[str] = []
        problems = []
        try:
            runs = read_runs(folder, complain=complaints.append)
            if len(runs) + len(complaints) != len(ROWS):
                problems.append(f"{len(runs)} rows and {len(complaints)} complaints")
            if not markdown_comparison(compare(run.row for run in runs)):
                problems.append("no report")
        except Exception as error:
            problems.append(f"{type(error).__name__} {error}")
    if not "".join(complaints).isprintable():
        problems.append(f"complaints {complaints}")
    outcomes.add("left out" if complaints else "compared", problems, changed)


def test_a_row_of_any_content_is_compared_or_left_out():
    compare_or_leave_out()
    assert outcomes.counts["left out"] > 0
    assert outcomes.counts["compared"] > 0
    outcomes.close()
