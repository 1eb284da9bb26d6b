"""The pages of studies: their labels, plots and command."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests import forked
from tests.conftest import ROOT
from tests.sweeps import crossing, ops_row
from trainkit.analysis.candidates import dynamic_over_static
from trainkit.analysis.comparison import compare
from trainkit.analysis.studies import PlannedComparison
from trainkit.report.labels import pair_label
from trainkit.report.markdown import markdown_compiled
from trainkit.report.plots.palette import looks_of
from trainkit.report.plots.ratios import plot_dynamic_over, plot_speedups_over
from trainkit.report.plots.series import series_of
from trainkit.report.plots.times import plot_times_over


def test_choices_of_which_one_says_nothing_more_keep_what_they_share():
    warm = PlannedComparison("compile_time_s", "compile.mode=default cache_found=warm", "compile.mode=default")
    assert pair_label(warm) == "Compile time of default, cache_found=warm over default"


def test_a_dropped_row_still_says_what_the_compiler_did():
    counts = {"num_graphs": 8, "num_graph_breaks": 0, "num_recompiles": 7, "num_eager_steps": 52, "num_steps": 60}
    mixed = {"effective_mode": "mixed", "effective_mode_reason": "recompile limit (8) reached"}
    one = ops_row(1, 2.0, 0, compile_mode="default", **counts, **mixed)
    *_, line = markdown_compiled([one, replace(one, repeat=1)]).splitlines()
    dropped = "requested default, effective mixed: recompile limit (8) reached"
    assert line == f"| model.num\\_ops=1 | 8 | 0 | 7 | 52 | 60 | {dropped} |"
    sides = [replace(one, kind=kind, overrides=["model.rewritten=True"]) for kind in ("train", "forward")]
    *_, trained, called = markdown_compiled(sides).splitlines()
    assert trained.startswith("| kind=train model.rewritten=true | 8 |")
    assert called.startswith("| kind=forward model.rewritten=true | 8 |")


def test_without_a_compiled_setting_there_is_no_table_of_the_compiler():
    assert markdown_compiled([ops_row(1, 2.0, 0, compile_mode="eager")]) == ""


def test_what_was_compiled_again_says_for_what_and_by_which_settings():
    cause = "inputs.size()[0] == 64"
    again = [
        replace(
            ops_row(n, 2.0, repeat, compile_mode="default"), num_graphs=2, num_recompiles=1,
            recompiles=[f"0/{repeat}: {cause}"],
        )
        for n in (1, 30)
        for repeat in range(2)
    ]  # fmt: skip
    *_, said = markdown_compiled(again).splitlines()
    assert said.replace("\\", "") == f"Recompiled for {cause}: model.num_ops=1; model.num_ops=30."
    quoted = f"0/1: {cause}   # return self.net(x)  # [B, 4]  # rk/main/models/net.py:46 in forward\nUser stack trace:"
    *_, said = markdown_compiled([replace(again[0], recompiles=[quoted])]).splitlines()
    assert said.replace("\\", "") == f"Recompiled for {cause} (return self.net(x)): model.num_ops=1."


def test_groups_over_a_number_are_a_series_and_no_other_groups_are():
    groups = compare(crossing()).groups
    (series,) = series_of(groups)
    assert (series.setting, [number for number, _ in series.groups]) == ("model.num_ops", [1, 10, 30])
    assert series_of(groups[:2]) == []
    deadlines = {"1": 2.0, "10": 10.0, "30": 50.0}
    late = [replace(one, deadline_ms=deadlines[one.overrides[0].partition("=")[2]]) for one in crossing()]
    late = [replace(one, overrides=[f"forward.deadline_ms={one.deadline_ms}", *one.overrides[1:]]) for one in late]
    assert series_of(compare(late).groups) == []
    other = [replace(one, model="other", run_id=f"other-{one.run_id}") for one in crossing()]
    assert [of.condition for of in series_of(compare([*crossing(), *other]).groups)] == ["op_chain", "other"]
    larger = [replace(one, batch_size=2048, run_id=f"larger-{one.run_id}") for one in crossing()]
    two = series_of(compare([*crossing(), *larger]).groups)
    assert [of.condition for of in two] == [f"data.batch_size={crossing()[0].batch_size}", "data.batch_size=2048"]
    called = [replace(one, kind="forward", run_id=f"called-{one.run_id}") for one in crossing()]
    assert [of.condition for of in series_of(compare([*crossing(), *called]).groups)] == ["train", "forward"]
    old = [[replace(row, schema_version=version) for row in crossing()] for version in (1, 2)]
    versions = series_of(compare([*crossing(), *old[0], *old[1]]).groups)
    assert [series.setting for series in versions] == ["model.num_ops"] * 3
    assert [series.condition for series in versions] == ["schema_version=3", "schema_version=1", "schema_version=2"]
    plot = plot_speedups_over(series, looks_of(groups), "p")
    assert plot is not None
    assert dict(plot.keys) == {"default, dynamic=false": "0.60x to 3.50x", "default, dynamic=true": "0.48x to 2.80x"}


def test_times_over_a_number_have_lines_and_turning_points():
    groups = compare(crossing()).groups
    (series,) = series_of(groups)
    plot = plot_times_over(series, looks_of(groups), "p")
    assert plot is not None
    texts = dict(plot.keys)
    assert texts["eager"].startswith("takes 200.20 [")
    assert "us more for each and crosses eager at model.num_ops=5.0 [5.0, 5.0]" in texts["default, dynamic=false"]
    assert "us more for each and crosses eager at model.num_ops=7.5 [7.5, 7.5]" in texts["default, dynamic=true"]
    assert all(text in plot.note for text in texts.values())
    differences = (
        "At model.num_ops=10 default, dynamic=true takes 500.5 [497.8, 503.2] us more than default, dynamic=false."
    )
    assert plot.note.endswith(differences)
    slow = [replace(row, step_time_ms_p50=9.0) if row.compile_dynamic else row for row in crossing()]
    plot = plot_times_over(series_of(compare(slow).groups)[0], looks_of(groups), "p")
    assert plot is not None
    assert dict(plot.keys)["default, dynamic=true"].endswith("does not cross eager within model.num_ops=1 to 30")
    far = [replace(row, overrides=[row.overrides[0] + "00", *row.overrides[1:]]) for row in crossing()[3:]]
    (series,) = series_of(compare([*crossing()[:3], *far]).groups)
    assert plot_times_over(series, looks_of(groups), "p") is None


def test_dynamic_over_static_is_a_ratio_with_its_interval():
    groups = compare(crossing()).groups
    (series,) = series_of(groups)
    plot = plot_dynamic_over(series, looks_of(groups), "p")
    assert plot is not None
    assert plot.keys == (("default, dynamic=true", "1.25x to 1.25x"),)
    (over,) = dynamic_over_static(groups[0].candidates).values()
    assert over.low < 1.25 < over.high
    limited = [replace(row, compile_max_recompiles=None if row.compile_dynamic else 9) for row in crossing()]
    groups = compare(limited).groups
    assert [over.value for over in dynamic_over_static(groups[0].candidates).values()] == pytest.approx([1.25])
    static = [row for row in crossing() if not row.compile_dynamic]
    assert plot_dynamic_over(series_of(compare(static).groups)[0], looks_of(groups), "p") is None


def test_the_command_names_what_has_no_rows(tmp_path: Path):
    done = forked.python(ROOT / "scripts" / "studies.py", tmp_path, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"studies: no rows in {tmp_path} of any study; NAME is one of amp_and_")
    (tmp_path / "000-eager").mkdir()
    (tmp_path / "000-eager" / "row.json").write_text("{}")  # the folder of one study, not the one above it
    assert forked.python(ROOT / "scripts" / "studies.py", tmp_path, cwd=tmp_path).stderr == done.stderr
    assert not list(tmp_path.glob("*.md"))
