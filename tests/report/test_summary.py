"""The summary of a run, of a job and of an epoch in the terminal."""

from dataclasses import replace
from io import StringIO

import pytest
from rich.console import Console

from tests.report.conftest import line_of, shown
from tests.sweeps import BREAKS, EPOCH, ROW, gpu_sweep, make_row
from trainkit.diagnosis.remedies.graph_breaks import remedy_for_break
from trainkit.diagnosis.remedies.recompiles import CHANGING_SIZE
from trainkit.report.summary import job_outcome, print_epoch, print_run
from trainkit.results.files import write_row
from trainkit.results.row import Row


def test_the_summary_of_a_run_has_every_figure_with_its_unit(snapshot):
    assert shown(print_run, ROW, "runs/here") == snapshot


def test_the_summary_of_a_compiled_run_has_the_phases_of_compiling_the_parts_of_a_step_and_the_check(snapshot):
    (compiled,) = [r for r in gpu_sweep(1) if (r.status, r.compile_mode) == ("ok", "reduce-overhead")]
    without_causes = replace(compiled, graph_breaks=None, recompiles=None)
    assert shown(print_run, without_causes, "runs/here") == snapshot
    eager = shown(print_run, ROW, "runs/here")
    assert not any(word in eager for word in ("start-up", "check", "profiling"))


def test_several_processes_are_said(tmp_path):
    assert "batch 64 for each of 2 processes" in shown(print_run, replace(ROW, world_size=2), tmp_path)


def test_a_summary_says_what_broke_a_graph_what_made_it_compile_anew_and_what_to_do(tmp_path):
    again = {"recompiles": ["0/0: size mismatch"], "recompile_shapes": [[[40, 3], [40]]], "recompile_times_s": [1.5]}
    text = shown(print_run, replace(ROW, graph_breaks=BREAKS, **again), tmp_path, width=500)
    item, printed = (remedy_for_break(graph_break) for graph_break in BREAKS)
    order = [
        *("models/resnet.py:41: Unsupported Tensor.item()", f".item(): {item.fix}"),
        *("models/resnet.py:57: ", f"print: {printed.fix}"),
        *("1.50 s: 0/0: size mismatch (by a batch of [40, 3] and [40])", f"shape that changes: {CHANGING_SIZE.fix}"),
    ]
    assert [text.index(words) for words in order] == sorted(text.index(words) for words in order)


def test_a_summary_says_which_batch_brought_a_recompile_where_a_size_is_its_cause(tmp_path):
    bound, grad = "0/0: 2 <= inputs.size()[0] <= 32", "0/0: GLOBAL_STATE changed: grad_mode"
    again = {"recompiles": [f"{bound}  # {'loss = f(x) ' * 30}", grad], "recompile_times_s": [1.5, 0.5]}
    again["recompile_shapes"] = [[[45, 3], [45]], [[64, 3], [64]]]
    text = shown(print_run, replace(ROW, **again), tmp_path, width=400)
    assert f"1.50 s: {bound} (by a batch of [45, 3] and [45])" in text
    assert grad not in text  # every run with a validation has it
    assert "(1 for validation)" in text
    assert text.count("by a batch") == 1


def test_a_summary_names_the_files_that_exist(tmp_path):
    write_row(tmp_path, ROW)
    (tmp_path / "checkpoints").mkdir()
    text = shown(print_run, ROW, tmp_path, width=300)
    assert line_of(text, "files").split() == ["files", f"{tmp_path}:", "row.json", "checkpoints/"]


def test_asked_and_got_that_differ_end_the_summary_with_a_yellow_line(tmp_path):
    other = make_row("reduce-overhead", 2.0, effective_mode="default", effective_mode_reason="no [CUDA] device")
    file = StringIO()
    print_run(other, tmp_path, console=Console(file=file, width=120, force_terminal=True, color_system="standard"))
    assert file.getvalue().endswith("\x1b[33mrequested reduce-overhead, effective default: no [CUDA] device\x1b[0m\n")


def test_a_failure_ends_the_summary_with_a_red_line_and_dashes_for_what_is_unknown(tmp_path):
    failed = Row(run_id="a/b", status="oom", error="OutOfMemoryError: 2 GiB\nsecond line", model="m", data="d")
    file = StringIO()
    print_run(failed, tmp_path, console=Console(file=file, width=120, force_terminal=True, color_system="standard"))
    text = file.getvalue()
    assert text.endswith("\x1b[31moom: OutOfMemoryError: 2 GiB\x1b[0m\n")
    assert "p50 -, p90 -, p99 -" in text
    assert "allocated -, reserved -" in text
    assert "None" not in text


def test_a_good_run_ends_with_its_files(tmp_path):
    assert shown(print_run, ROW, tmp_path).splitlines()[-1].startswith("files")


@pytest.mark.parametrize(
    ("job", "outcome"),
    [
        (make_row("default", 23.581, compile_time_s=55.61), "ok: step 23.58 ms, compile 55.6 s"),
        (make_row("default", None, status="timeout", error="stopped after 5 s"), "timeout: stopped after 5 s"),
        (make_row("default", 2.0, effective_mode="mixed"), "requested default, effective mixed"),
    ],
)
def test_a_jobs_outcome_is_one_line(job, outcome):
    assert job_outcome(job) == outcome


def test_an_epoch_is_one_line_that_counts_from_one():
    line = shown(print_epoch, EPOCH, 10, width=80)
    assert line == "epoch  3/10  loss 0.5123  val -  accuracy 0.913  12.8 s + 0.050 s (12.3 s compile)\n"


@pytest.mark.parametrize("max_epochs", [None, -1])
def test_an_epoch_of_a_run_without_a_last_one(max_epochs):
    line = shown(print_epoch, replace(EPOCH, compile_time_s=0.0, val_loss=0.48), max_epochs)
    assert line == "epoch 3  loss 0.5123  val 0.4800  accuracy 0.913  12.8 s + 0.050 s\n"
