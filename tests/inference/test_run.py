"""Forward only: the time of a call, the stage of a cascade that serves it, the row, and what is refused."""

import re
import subprocess
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hydra import compose, initialize_config_dir

from tests import forked
from tests.networks import network, partly_ignored
from trainkit.analysis.comparison import compare
from trainkit.analysis.dropping import why_dropped
from trainkit.config.composition import FORWARD, compose_config
from trainkit.config.errors import ConfigError
from trainkit.config.fallback import compose_fallback
from trainkit.config.schema import RunConfig
from trainkit.inference.run import run_forward
from trainkit.inference.serving import NUM_MEASURING
from trainkit.report.labels import work_label
from trainkit.report.markdown import markdown_comparison
from trainkit.report.page import html_comparison
from trainkit.report.summary import print_run
from trainkit.results.facts import ExpectedLatency, ShapeLatency, Stage
from trainkit.results.files import read_row
from trainkit.results.row import Row
from trainkit.results.runs import read_rows
from trainkit.sweep.job import row_of_request
from trainkit.sweep.plan import Job, Sweep
from trainkit.sweep.slots import Slot
from trainkit.training.run import run

ROOT = Path(__file__).parents[2]
CONF = ROOT / "conf"
CPU = "trainer.accelerator=cpu"
EAGER = ("compile.mode=eager", CPU)


@pytest.fixture
def bench(tmp_path):
    """(overrides, ...) -> the row of what bench.py does with them, in this process. Its run directory: tmp_path/run."""

    def called(*words: str, run_dir: Path = tmp_path / "run") -> Row:
        run_dir.mkdir(exist_ok=True)
        config = composed(*words, run_dir=str(run_dir))
        return run_forward(config, compose_fallback(config, CONF))

    return called


@pytest.fixture
def napping(bench, monkeypatch):
    """As `bench`, for networks that nap: a call takes as long as its nap and 0.05 ms, whatever the machine does."""
    now_s = 0.0

    def mark() -> float:
        nonlocal now_s
        now_s += 5e-5
        return now_s

    def sleep(seconds: float) -> None:
        nonlocal now_s
        now_s += seconds

    monkeypatch.setattr("trainkit.metrics.calls.mark", mark)
    monkeypatch.setattr("tests.networks.time", SimpleNamespace(sleep=sleep))
    return bench


def composed(*words: str, run_dir: str = "") -> RunConfig:
    return compose_config(["logger=none", *words], CONF, run_dir, FORWARD)


def bench_py(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return forked.python(ROOT / "scripts" / "bench.py", *words, "trainer.accelerator=cpu", cwd=folder)


def test_a_sweep_of_calls_ends_in_rows_and_a_comparison(tmp_path):
    words = ("-m", "compile.mode=eager", "forward.num_calls=20", "forward.deadline_ms=10000", "sweep=s", "logger=none")
    done = bench_py(tmp_path, *words, "forward.fallback=[],['model=simple_net']")
    assert done.returncode == 0, done.stdout + done.stderr
    rows = read_rows(tmp_path / "runs/sweeps/s")
    assert [(row.kind, row.status, row.deadline_miss_frac) for row in rows] == [("forward", "ok", 0.0)] * 2
    assert rows[0].num_steady_steps == 20 - rows[0].num_warmup_steps
    assert rows[1].num_steady_steps == 20  # those that measure come before
    assert rows[0].chain is None
    assert [stage.call_frac for stage in rows[1].chain] == [1.0, 0.0]
    assert "simple_cnn on digits, batch 64, forward only" in done.stdout
    report = (tmp_path / "runs/sweeps/s/report.md").read_text().replace("\\", "")
    served = r"served by simple_cnn eager 100.0 % \(accuracy 0\.\d{3}\), model=simple_net 0.0 % \(accuracy 0\.\d{3}\)"
    assert re.search(served, report)
    assert report.count("Missed: a request comes once in each deadline") == 1


def test_what_bench_cannot_do_is_one_line_each_and_exit_status_2(tmp_path):
    done = bench_py(tmp_path, "forward.deadline_ms=-1", "forward.num_calls=0", "optimizer.lr=1")
    assert done.returncode == 2
    assert [line.split(" =")[0] for line in done.stderr.splitlines()] == [
        "forward.num_calls",
        "forward.deadline_ms",
        "optimizer.lr",
    ]


def test_each_call_is_measured_and_its_answer_is_the_networks(bench, tmp_path):
    words = ("compile.backend=aot_eager", "trainer.accelerator=cpu", "forward.num_calls=60")
    row = bench(*words)
    assert read_row(tmp_path / "run") == row
    assert (row.kind, row.status, row.effective_mode, row.num_epochs) == ("forward", "ok", "default", 0)
    assert (row.num_graphs, row.num_recompiles) == (2, 1)  # full batches, and the short last one
    assert (row.num_steps, row.num_compiling_steps) == (60, 2)
    assert row.num_steady_steps == 58 - row.num_warmup_steps
    assert 0 < row.step_time_ms_p50 <= row.step_time_ms_p90 <= row.step_time_ms_p99
    assert row.compile_time_s > 0
    assert row.samples_per_s > 0
    assert row.peak_device_bytes > 2**20
    assert (row.train_loss, row.epoch_train_time_s, row.data_wait_frac) == (None, None, None)
    assert row.num_val_targets == 359
    assert [one.shape for one in row.latency_by_shape] == [[39, 1, 8, 8], [64, 1, 8, 8]]
    assert sum(one.num_calls for one in row.latency_by_shape) == row.num_steady_steps


def test_a_checkpoints_parameters_answer(bench, compose, tmp_path):
    trained = run(compose("compile.mode=eager", "trainer.max_epochs=2", run_dir=tmp_path / "trained"))
    ckpt = f"ckpt_path={tmp_path}/trained/checkpoints/last.ckpt"
    row = bench(*EAGER, ckpt, "forward.num_calls=6")  # validation's batches, each once
    assert row.val_accuracy == pytest.approx(trained.val_accuracy)
    assert bench(*EAGER, "forward.num_calls=6").val_accuracy < row.val_accuracy
    exported = bench(*EAGER, ckpt, "forward.num_calls=6", "forward.engine=export")  # one of them is shorter
    assert exported.val_accuracy == row.val_accuracy
    assert exported.package_bytes == (tmp_path / "run" / "package.pt2").stat().st_size
    assert exported.first_answer_s > exported.package_load_s > 0
    assert (exported.engine, row.engine, row.package_bytes) == ("export", "network", None)
    with pytest.raises(ConfigError, match="is of another network than model = simple_net"):
        bench(*EAGER, ckpt, "model=simple_net")


def test_targets_that_do_not_count_are_in_no_accuracy(bench, compose, tmp_path):
    words = partly_ignored([2, 3, 6, 9])
    trained = run(compose(*words, "compile.mode=eager", "trainer.max_epochs=1", run_dir=tmp_path / "trained"))
    row = bench(*words, *EAGER, f"ckpt_path={tmp_path}/trained/checkpoints/last.ckpt", "forward.num_calls=5")
    assert (row.val_accuracy, row.num_val_targets) == (pytest.approx(trained.val_accuracy), 6)


@pytest.mark.parametrize("name", ["Regresses", "ReturnsDict"])
@pytest.mark.parametrize("scope", ["step", "net"])
def test_a_network_without_logits_has_no_accuracy(name, scope, bench):
    row = bench(network(name), f"compile.scope={scope}", "compile.backend=eager", "forward.num_calls=8", CPU)
    assert (row.status, row.num_graphs, row.effective_mode) == ("ok", 2, "default")
    assert row.step_time_ms_p50 > 0
    assert (row.val_accuracy, row.num_val_targets) == (None, None)


def test_an_exported_graph_is_compiled_like_the_network(bench):
    row = bench(
        network("ReturnsDict"), "forward.engine=export", "forward.num_calls=8", "compile.backend=eager", CPU,
        "compile.dynamic=true",
    )  # fmt: skip
    assert (row.status, row.effective_mode, row.num_graphs, row.num_graph_breaks) == ("ok", "default", 1, 0)


def test_a_package_of_aot_inductor_has_the_checkpoints_parameters_and_takes_batches_of_each_size(
    bench, compose, tmp_path
):
    words = (network("Plain"), CPU)
    trained = run(compose(*words, "compile.mode=eager", "trainer.max_epochs=2", run_dir=tmp_path / "trained"))
    words = (*words, "forward.num_calls=6", f"ckpt_path={tmp_path}/trained/checkpoints/last.ckpt")
    row = bench(*words, "forward.engine=aot_inductor", "check=true")
    assert (row.status, row.effective_mode, row.num_graphs, row.num_eager_steps) == ("ok", "default", 1, 0)
    assert row.compile_time_s > row.first_answer_s > row.package_load_s > 0
    assert row.package_bytes == (tmp_path / "run" / "package.pt2").stat().st_size
    assert row.check_passed, row.check_reason
    assert 0 < row.check_output_rel_diff < 1e-6
    assert (row.val_accuracy, row.num_val_targets) == (pytest.approx(trained.val_accuracy), 359)


@pytest.mark.parametrize("amp", ["off", "bf16"])
def test_outputs_are_compared_with_eager_and_float64(amp, bench):
    words = (network("ReturnsDict"), "compile.backend=aot_eager", "forward.num_calls=8", CPU, f"amp={amp}")
    row, plain = bench(*words, "check=true"), bench(*words)
    assert (row.status, row.check_passed, row.check_reason) == ("ok", True, None)
    most = {"off": 1e-6, "bf16": 1e-2}[amp]
    assert 0 < row.check_output_rel_diff < most
    assert 0 < row.check_eager_output_rel_diff < most
    assert (row.num_graphs, row.num_steps, row.check_loss_rel_diff) == (plain.num_graphs, plain.num_steps, None)


def test_a_network_that_returns_other_numbers_compiled_does_not_pass(bench):
    row = bench(network("WrongCompiled"), "compile.backend=eager", "forward.num_calls=8", CPU, "check=true")
    assert (row.status, row.check_passed) == ("ok", False)
    assert row.check_reason.startswith("outputs differ from float64 by ")
    assert why_dropped(row).startswith("numbers differ from eager: outputs differ")


def test_without_a_yardstick_nothing_is_known(bench):
    row = bench(*EAGER, network("DrawsInEvaluation"), "forward.num_calls=8", "check=true")
    assert (row.check_passed, row.check_reason) == (None, "the network draws random numbers: each call draws others")


def test_a_check_is_no_part_of_the_measured_calls(bench):
    function = "trainkit.models.local_optimized.costly_activation"
    words = (
        "model=local_optimized", "compile.scope=parts", f"compile.parts=[{{match: {function}}}]", "data=synthetic",
        "compile.backend=eager", "forward.num_calls=8", "data.image_size=8", "data.batch_size=2", CPU,
    )  # fmt: skip
    row, plain = bench(*words, "check=true"), bench(*words)
    assert row.check_passed, row.check_reason
    assert (row.compiled_parts, row.num_steps) == (plain.compiled_parts, plain.num_steps)


def test_a_network_that_cannot_be_exported_is_a_row(bench, capsys):
    row = bench("model=tensor_branch", "model.rewritten=false", *EAGER, "forward.engine=export")
    assert (row.status, row.num_steps, row.package_bytes) == ("compile_error", 0, None)
    assert row.error.startswith("ExportError: torch.export: ")


def test_programs_are_compared_with_the_eager_network():
    rows = [forward_row("eager", n, 8.0 + n / 100) for n in range(3)]
    packages = [replace(forward_row("default", n, 4.0), engine="aot_inductor", package_bytes=2**20) for n in range(3)]
    exported = [replace(forward_row("eager", n, 9.0), engine="export") for n in range(3)]
    comparison = compare([*rows, *packages, *exported])
    (group,) = comparison.groups
    speedups = {candidate.label: round(candidate.speedup.value, 1) for candidate in group.candidates}
    assert speedups == {
        "eager, engine=network": 1.0,
        "default, engine=aot_inductor": 2.0,
        "eager, engine=export": 0.9,
    }
    page = html_comparison(comparison, {}, "programs")
    assert "Start-up and size" in page
    assert "1.00 MiB" in page


def test_a_call_is_waited_for(bench):
    row = bench(*EAGER, network("Naps"), "+model.ms=20", "forward.num_calls=10", "forward.deadline_ms=15")
    assert row.step_time_ms_p50 >= 20
    assert row.samples_per_s <= 64 / 0.020
    assert row.deadline_miss_frac == 1.0


def test_shapes_follow_the_schedule_and_have_latencies_of_their_own(bench):
    words = ("data=synthetic", "data.batch_sizes=[2,16]", "forward.num_calls=40", "model=simple_net")
    row = bench(*EAGER, *words)
    assert [one.shape[0] for one in row.latency_by_shape] == [2, 16]
    assert sum(one.num_calls for one in row.latency_by_shape) == row.num_steady_steps == 40 - row.num_warmup_steps


def test_calls_are_issued_back_to_back_in_windows_whose_shapes_vary(bench):
    row = bench(
        "data=synthetic", "data.batch_sizes=[4,5,6,7,8]", "model=simple_net", "forward.timing=stream",
        "forward.num_calls=105", "forward.calls_per_window=10", "compile.backend=eager", "compile.dynamic=true",
        "trainer.accelerator=cpu",
    )  # fmt: skip
    assert (row.status, row.timing, row.calls_per_window) == ("ok", "stream", 10)
    assert (row.num_steps, row.num_compiling_steps, row.num_eager_steps) == (11, 1, 0)
    assert row.num_steady_steps == 9 - row.num_warmup_steps
    assert 0 < row.step_time_ms_p50 <= row.step_time_ms_p90
    assert row.samples_per_s > 0
    assert (row.latency_by_shape, row.val_accuracy, row.num_val_targets) == (None, None, None)


def test_calls_that_are_waited_for_and_windows_are_not_compared():
    rows = [forward_row("eager", n, 8.0 + n / 100) for n in range(3)]
    windows = [replace(row, timing="stream", calls_per_window=20) for row in rows]
    labels = [work_label(group) for group in compare([*rows, *windows]).groups]
    label = "resnet50 on synthetic, batch 1, forward only"
    assert labels == [label, f"{label}, back to back in windows of 20"]


def test_dynamic_dimensions_and_a_recompile_budget_hold_for_calls(bench):
    words = (
        "data=synthetic",
        "data.batch_sizes=[2,9]",
        "data.order=random",
        "model=simple_net",
        "compile.backend=eager",
    )
    marked = bench(*words, "compile.mark_dynamic=[{input: inputs, dim: 0}]", "forward.num_calls=10")
    assert (marked.num_graphs, marked.num_recompiles) == (1, 0)
    limited = bench(*words, "compile.dynamic=false", "compile.max_recompiles=1", "forward.num_calls=20")
    assert (limited.num_graphs, limited.num_recompiles, limited.effective_mode) == (2, 1, "mixed")
    assert limited.num_eager_steps > 0
    assert limited.recompile_shapes[0][0][1:] == [3, 32, 32]


def test_a_recompile_budget_ends_the_calls_where_it_is_asked_to(bench, capsys):
    row = bench(
        "data=synthetic", "data.batch_sizes=[2,3,4,5]", "model=simple_net", "compile.backend=aot_eager",
        "compile.dynamic=false", "compile.max_recompiles=2", "compile.on_recompile_limit=raise", "forward.num_calls=8",
        "trainer.accelerator=cpu",
    )  # fmt: skip
    assert (row.status, row.num_steps, row.num_recompiles, row.num_graphs) == ("compile_error", 3, 2, 3)
    assert row.error.endswith("compile.max_recompiles = 2: [5, 3, 32, 32] needed one more")
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith("or let it run uncompiled (compile.on_recompile_limit=eager)")


def test_a_network_is_called_in_eval_mode_without_gradients_in_the_asked_precision(bench, monkeypatch):
    from tests.networks import Plain

    seen = []
    plain = Plain.forward

    def spy(self, images):
        logits = plain(self, images)
        seen.append((self.training, torch.is_inference_mode_enabled(), torch.is_grad_enabled(), logits.dtype))
        return logits

    monkeypatch.setattr(Plain, "forward", spy)
    bench(*EAGER, network("Plain"), "amp=bf16", "forward.num_calls=3")
    assert seen[1:] == [(False, True, False, torch.bfloat16)] * 3  # the first was build's, to see that it fits


@pytest.mark.parametrize("scope", ["net", "step", "blocks", "parts"])
def test_every_scope_compiles_what_it_names(scope, bench):
    words = ("compile.parts=[{match: blocks.0}]",) if scope == "parts" else ()
    row = bench(
        network("Deep"), f"compile.scope={scope}", "compile.backend=eager", *words, "forward.num_calls=12",
        "trainer.accelerator=cpu", "data=synthetic", "model.image_size=8", "data.image_size=8",
    )  # fmt: skip
    assert (row.status, row.effective_mode) == ("ok", "default"), row.error
    assert row.num_graphs == 1
    names = {"parts": ["blocks.0"], "blocks": ["blocks.0", "blocks.1"]}.get(scope)
    assert names == (row.compiled_parts and [part.name for part in row.compiled_parts])


@pytest.mark.parametrize("how", ["failed", "oom", "interrupted", "sigterm"])
def test_a_failure_is_a_row_with_what_was_measured(how, bench, tmp_path, capsys):
    row = bench(*EAGER, network("EndsAtCall"), f"+model.how={how}")
    assert row.status == {"sigterm": "interrupted"}.get(how, how)
    assert row == read_row(tmp_path / "run")
    assert (row.num_steps, row.num_steady_steps) == (30, 30 - row.num_warmup_steps)
    assert row.step_time_ms_p50 > 0
    assert ("ArithmeticError: " in capsys.readouterr().err) == (how == "failed")


def test_what_cannot_be_compiled_is_a_row(bench, capsys):
    row = bench(network("Breaks"), "compile.fullgraph=true", "compile.backend=eager", "trainer.accelerator=cpu")
    assert row.status == "compile_error"


def test_a_stage_that_is_seldom_slow_and_mostly_fast_answers_where_none_fits(napping):
    row = napping(
        *EAGER, network("Naps"), "+model.ms=4", "forward.num_calls=20", "forward.deadline_ms=1", "data=synthetic",
        "forward.fallback=['+model.ms=40 +model.one_of=5']", "data.batch_size=4",
    )  # fmt: skip
    (steady,), (seldom,) = (stage.expected_ms for stage in row.chain)
    assert steady.time_ms < seldom.time_ms
    assert steady.time_ms_p50 > seldom.time_ms_p50
    assert [stage.num_calls for stage in row.chain] == [0, 20]


def test_a_stage_that_is_too_slow_is_measured_and_never_called_again(napping, capsys, tmp_path):
    row = napping(
        *EAGER, network("Naps"), "+model.ms=50", "forward.num_calls=20", "forward.deadline_ms=20",
        "forward.fallback=['+model.ms=0']", "data=synthetic", "data.batch_size=4",
    )  # fmt: skip
    slow, fast = row.chain
    assert (slow.num_calls, slow.call_frac, slow.time_ms_p50) == (0, 0.0, None)
    assert slow.expected_ms[0].time_ms >= 50
    print_run(row, tmp_path)
    said = " ".join(capsys.readouterr().out.split())
    assert "0.0 % tests.networks.Naps eager: effective eager, graphs 0; expected " in said
    assert "100.0 % +model.ms=0: effective eager, graphs 0; p50 " in said
    assert (fast.num_calls, fast.call_frac) == (20, 1.0)
    assert (fast.settings, fast.effective_mode) == ("+model.ms=0", "eager")
    assert (row.num_steps, row.num_warmup_steps) == (20 + 2 * NUM_MEASURING, 2 * NUM_MEASURING)


def test_a_stage_that_fits_answers_whatever_comes_after_it(napping):
    row = napping(
        *EAGER, network("Naps"), "+model.ms=5", "forward.num_calls=20", "forward.deadline_ms=10000",
        "forward.fallback=['+model.ms=0']", "data=synthetic", "data.batch_sizes=[2,4]",
    )  # fmt: skip
    assert [stage.call_frac for stage in row.chain] == [1.0, 0.0]
    assert row.deadline_miss_frac == 0.0
    assert [of.shape[0] for of in row.chain[1].expected_ms] == [2, 4]


def test_a_late_call_is_answered_by_the_fastest_stage_at_the_deadline(napping, capsys, tmp_path):
    row = napping(
        *EAGER, network("Naps"), "+model.ms=40", "+model.one_of=30", "+model.least_ms=5", "forward.num_calls=60",
        "forward.deadline_ms=35", "forward.fallback=['+model.ms=0 +model.least_ms=0']", "forward.late=fallback",
        "data=synthetic", "data.batch_size=4",
    )  # fmt: skip
    slow, fast = row.chain
    assert fast.num_calls == 60  # called before each call of the other
    assert 0 < slow.num_calls <= 60
    assert slow.call_frac + fast.call_frac == pytest.approx(1)
    assert row.late_call_frac > 0
    assert fast.call_frac >= row.late_call_frac
    assert row.response_time_ms_p50 <= row.response_time_ms_p90 <= row.response_time_ms_p99
    print_run(row, tmp_path)
    assert "of calls were late, and answered by the fastest stage" in " ".join(capsys.readouterr().out.split())


def test_the_first_calls_are_kept_as_they_came(bench):
    words = ("model=simple_net", CPU, "compile.backend=eager", "compile.dynamic=false", "data=synthetic",
             "data.batch_sizes=[2,4]", "forward.num_calls=20")  # fmt: skip
    row = bench(*words)
    assert row.num_compiling_steps == 2  # the second size comes second
    assert row.first_answer_s * 1e3 > row.step_time_ms_p50
    assert row.second_call_ms > row.mean_after_first_ms > row.step_time_ms_p50
    assert row.mean_after_first_ms * 19 + row.first_answer_s * 1e3 == pytest.approx(row.steps_time_s * 1e3)
    windows = bench(*words, "forward.timing=stream", "forward.calls_per_window=4")
    assert (windows.first_answer_s, windows.second_call_ms, windows.mean_after_first_ms) == (None, None, None)


def test_requests_that_a_compile_lets_wait_miss_the_deadline_among_all_calls(bench, capsys, tmp_path):
    words = ("model=simple_net", "data=synthetic", "forward.num_calls=40", "forward.deadline_ms=10")
    row = bench(*words, "compile.backend=eager")
    assert row.num_compiling_steps == 1
    assert row.all_calls_miss_frac * 40 >= 1 + row.deadline_miss_frac * row.num_steady_steps
    print_run(row, tmp_path)
    assert "of all calls, compiles included, missed it" in " ".join(capsys.readouterr().out.split())
    cascade = bench(*words, *EAGER, "forward.fallback=['model=simple_net']")
    assert cascade.all_calls_miss_frac is None


def test_emergencies_go_first_where_calls_take_longer_than_requests_come(napping, capsys, tmp_path):
    words = (
        *EAGER, network("Naps"), "+model.ms=10", "forward.num_calls=60", "forward.deadline_ms=40",
        "forward.period_ms=8", "forward.emergency_frac=0.2", "data=synthetic", "data.batch_size=4",
    )  # fmt: skip
    in_order, first = napping(*words), napping(*words, "forward.emergency_first=true")
    assert in_order.emergency_time_ms_p99 > 60
    assert first.emergency_time_ms_p99 < in_order.emergency_time_ms_p99
    assert first.emergency_miss_frac < in_order.emergency_miss_frac
    assert first.deadline_miss_frac > 0
    assert 0 < first.correct_in_time_frac <= first.val_accuracy + 0.1
    print_run(first, tmp_path)
    assert "of emergencies missed it; response p50 " in " ".join(capsys.readouterr().out.split())


def test_each_stage_has_the_accuracy_of_all_batches_and_the_cascade_that_of_its_answers(bench, compose, tmp_path):
    run(compose("compile.mode=eager", "model=simple_net", "trainer.max_epochs=2", run_dir=tmp_path / "trained"))
    stage = f"model=simple_net ckpt_path={tmp_path}/trained/checkpoints/last.ckpt"
    words = (*EAGER, "forward.num_calls=12", f"forward.fallback=['{stage}']")
    row = bench(*words, "forward.deadline_ms=10000")
    untrained, trained = row.chain
    assert untrained.accuracy < 0.5 < trained.accuracy
    assert row.val_accuracy == row.correct_in_time_frac == pytest.approx(untrained.accuracy)
    hurried = bench(*words, "forward.deadline_ms=0.0001")  # no call is that fast
    assert (hurried.deadline_miss_frac, hurried.correct_in_time_frac) == (1.0, 0.0)


def test_stages_are_compiled_each_as_asked_and_told_apart(bench):
    row = bench(
        network("Plain"), "compile.backend=eager", "forward.num_calls=5", "forward.deadline_ms=10000",
        "forward.fallback=['compile.mode=eager','model._target_=tests.networks.Breaks']", "trainer.accelerator=cpu",
    )  # fmt: skip
    got = [(stage.compile_mode, stage.effective_mode, stage.num_graphs) for stage in row.chain]
    assert got == [("default", "default", 1), ("eager", "eager", 0), ("default", "default", 2)]
    assert (row.num_graphs, row.num_graph_breaks, row.num_eager_steps) == (3, 1, None)  # of all stages
    assert row.effective_mode == "default"


def test_the_stage_that_failed_is_named(bench, capsys):
    stage = "model._target_=tests.networks.Breaks compile.mode=default compile.backend=eager compile.fullgraph=true"
    row = bench(
        *EAGER, network("Plain"), "forward.num_calls=5", "forward.deadline_ms=10000", f"forward.fallback=['{stage}']"
    )
    assert row.status == "compile_error"
    assert row.error.startswith(f"forward.fallback, {stage}: ")
    assert f"\nforward.fallback, {stage}\n" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "num_graphs"),
    [(("compile.scope=step",), 4), (("compile.scope=net",), 4), ((network("Breaks"),), 8)],
    ids=["step", "net", "graph breaks"],
)
def test_stages_of_one_network_share_neither_code_nor_torchs_limit_of_it(words, num_graphs, bench):
    row = bench(
        "compile.backend=eager", "compile.dynamic=false", "data=synthetic", "data.batch_sizes=[2,3,4,5]",
        "forward.num_calls=4", "forward.deadline_ms=10000", "forward.fallback=['amp=off','amp=off']", *words,
        "trainer.accelerator=cpu",
    )  # fmt: skip
    got = [(stage.effective_mode, stage.num_graphs) for stage in row.chain]
    assert got == [("default", num_graphs)] * 3, row.chain
    assert row.num_graphs == 3 * num_graphs
    assert (
        row.num_recompiles
        == len(row.recompiles)
        == len(row.recompile_shapes)
        == sum(stage.num_recompiles for stage in row.chain)
    )
    assert row.num_graph_breaks == len(row.graph_breaks) == (num_graphs == 8)  # a place in the code is one place


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["forward.deadline_ms=0"], "forward.deadline_ms = 0.0: expected a number of milliseconds above 0"),
        (["forward.deadline_ms=inf"], "forward.deadline_ms = inf: expected a number of milliseconds above 0"),
        (["forward.num_calls=0"], "forward.num_calls = 0: expected a whole number of at least 1"),
        (
            ["forward.timing=stream", "forward.deadline_ms=5"],
            "forward.deadline_ms = 5.0: forward.timing = stream does not",
        ),
        (["forward.timing=stream", "forward.num_calls=3"], "forward.num_calls = 3: fills no window"),
        (
            ["forward.engine=export", "compile.scope=blocks"],
            "compile.scope = blocks: forward.engine = export has a graph",
        ),
        (["forward.engine=export", "compile.on_error=eager"], "compile.on_error = eager: forward.engine = export is"),
        (
            ["forward.engine=export", "forward.deadline_ms=5", "forward.fallback=['model=simple_net']"],
            "forward.engine = export: makes one program",
        ),
        (["forward.engine=aot_inductor", "compile.mode=eager"], "compile.mode = eager: forward.engine = aot_inductor "),
        (
            ["forward.engine=aot_inductor", "compile.mode=max-autotune"],
            "compile.mode = max-autotune: records CUDA graphs",
        ),
        (["forward.engine=aot_inductor", "compile.dynamic=true"], "compile.dynamic = true: has no effect with "),
        (
            ["check=true", "forward.deadline_ms=5", "forward.fallback=['model=simple_net']"],
            "check = True: compares one",
        ),
        (["forward.calls_per_window=9"], "forward.calls_per_window = 9: forward.timing = calls has no windows"),
        (["forward.fallback=['model=simple_net']"], "forward.fallback = ['model=simple_net']: chooses by a deadline"),
        (
            ["forward.deadline_ms=5", "forward.fallback=[['model=simple_net']]"],
            "forward.fallback = [['model=simple_net']]: expected entries as in forward.fallback=['model=simple_net']",
        ),
        (["forward.late=fallback", "forward.deadline_ms=5"], "forward.late = fallback: no other stage can answer"),
        (["forward.period_ms=5"], "forward.period_ms = 5.0: is of requests with a deadline"),
        (["forward.deadline_ms=5", "forward.emergency_first=true"], "forward.emergency_first = true: no request is "),
        (["forward.deadline_ms=5", "forward.emergency_frac=2"], "forward.emergency_frac = 2.0: expected a fraction"),
        (["trainer.max_epochs=3"], "trainer.max_epochs = 3: belongs to training"),
        (["meters.breakdown=true"], "meters.breakdown = true: belongs to training"),
        (["optimizer=sgd"], "optimizer = sgd: belongs to training"),
        (["compile.mark_dynamic=[{input: targets}]"], "compile.mark_dynamic, targets 0: forward alone is called"),
        (["trainer.devices=2", "trainer.accelerator=cpu"], "trainer.devices = 2: a call is of one process"),
        (
            ["forward.deadline_ms=5", "forward.fallback=['compile.mark_dynamic=[{dim:9}]']"],
            "forward.fallback, compile.mark_dynamic, inputs 9: the shape is [2, 1, 8, 8]",
        ),
        (
            ["forward.deadline_ms=5", "forward.fallback=['compile.mode=eager','model.width=abc']"],
            "forward.fallback, model.width = abc: expected a whole number; try model.width=32",
        ),
    ],
)
def test_a_setting_without_use_or_sense_is_one_line(words, complaint, bench):
    with pytest.raises(ConfigError) as caught:
        bench(*words)
    assert len(caught.value.complaints) == 1
    assert caught.value.complaints[0].startswith(complaint)


@pytest.mark.parametrize(
    ("stage", "complaint"),
    [
        ("model=foo", "model = foo: expected one of "),
        ("compile.mdoe=eager", "compile.mdoe = eager: no such setting; did you mean compile.mode?"),
        ("", "'': a stage sets nothing but model, "),
        ("data.batch_size=1", "data.batch_size: a stage sets nothing but model, "),
        ("model=mini_transformer", "model = mini_transformer: takes tokens, but data = digits gives images"),
        ("compile.mode=default,eager", "compile.mode = default,eager: expected one value; several are a list, ["),
        ("compile.parts=[fc]", "compile.parts = [fc]: expected entries as in compile.parts=[{match: NAME}]"),
        ("compile.dynamic=maybe", "compile.dynamic = maybe: expected true, false or null"),
        ("compile.cache=cold", "compile.cache = cold: all stages compile into the run's cache, which is warm; "),
        ("compile.max_recompiles=3", "compile.max_recompiles = 3: is of one network alone"),
    ],
)
def test_a_wrong_stage_is_one_line(stage, complaint):
    config = composed("forward.deadline_ms=5", f"forward.fallback=['{stage}','compile.mode=eager']")
    with pytest.raises(ConfigError) as caught:
        compose_fallback(config, CONF)
    assert len(caught.value.complaints) == 1
    assert caught.value.complaints[0].startswith(f"forward.fallback, {complaint}")


def test_a_stage_with_other_batches_or_a_compiled_function_is_refused(bench):
    chain = "forward.deadline_ms=5"
    tokens = ("model=mini_transformer", "data=synthetic", chain)
    with pytest.raises(ConfigError, match="model=gpt2: is called with other batches than the run"):
        bench(*tokens, "forward.fallback=['model=gpt2']")  # gpt2's have a target for each token
    with pytest.raises(ConfigError, match="model = simple_net: takes images, but data = synthetic "):
        bench(*tokens, "forward.fallback=['model=simple_net']")
    function = "trainkit.models.local_optimized.costly_activation"
    with pytest.raises(ConfigError, match=f"compile.parts = {function}: a function would be compiled for every stage"):
        bench(
            "model=local_optimized", "compile.scope=parts", f"compile.parts=[{{match: {function}}}]", chain,
            "compile.backend=eager", "forward.fallback=['compile.mode=eager']", "trainer.accelerator=cpu",
        )  # fmt: skip


def test_a_stage_of_another_model_drops_the_runs_own_model_settings():
    words = ("model=simple_cnn", "model.width=4", "amp=bf16", "forward.deadline_ms=5")
    config = composed(*words, "forward.fallback=['model=simple_net','compile.mode=eager']")
    another, same = compose_fallback(config, CONF)
    assert (another.job.model, another.model.get("width"), another.amp.precision) == ("simple_net", 512, "bf16-mixed")
    assert (same.job.model, same.model["width"], same.compile.mode) == ("simple_cnn", 4, "eager")


def test_a_stage_may_name_parts_as_the_readme_does():
    stage = "model=simple_cnn  compile.scope=parts compile.parts=[{match: conv1, mode: default},{match: fc}]"
    (found,) = compose_fallback(composed("forward.deadline_ms=5", f'forward.fallback=["{stage}"]'), CONF)
    assert [part.match for part in found.compile.parts] == ["conv1", "fc"]


def test_training_refuses_what_is_for_calls(compose):
    with pytest.raises(ConfigError) as caught:
        compose("forward.num_calls=3", "forward.deadline_ms=2")
    assert caught.value.complaints == (
        "forward.num_calls = 3: train.py trains; use it with scripts/bench.py",
        "forward.deadline_ms = 2.0: train.py trains; use it with scripts/bench.py",
    )


def forward_row(mode: str, repeat: int, step_ms: float) -> Row:
    times: dict[str, Any] = {"num_calls": 9, "time_ms_p50": 7.25, "time_ms_p90": 8.0, "time_ms_p99": 9.0}
    expected_ms = [ExpectedLatency([n, 3, 8, 8], 5.5 * n, 5.0) for n in (1, 2)]
    first = Stage(
        compile_mode=mode,
        effective_mode=mode,
        num_graphs=3,
        accuracy=0.9,
        call_frac=0.25,
        expected_ms=expected_ms,
        **times,
    )
    second = replace(first, settings="model=<i>small</i>")
    return Row(
        f"s/{mode}{repeat}", "ok", kind="forward", model="resnet50", data="synthetic", batch_size=1, compile_mode=mode,
        num_steps=200, num_steady_steps=190, step_time_ms_p50=step_ms, step_time_ms_p99=2 * step_ms,
        compile_time_s=0.0 if mode == "eager" else 2.0, device_name="GPU", num_devices=1, deadline_ms=10.0,
        deadline_miss_frac=0.125, latency_by_shape=[ShapeLatency([1, 3, 8, 8], **times)], chain=[first, second],
        fallback=["model=<i>small</i>"],
    )  # fmt: skip


def test_calls_are_compared_in_groups_of_their_own_and_said_as_calls():
    rows = [forward_row(mode, n, ms + n / 100) for mode, ms in (("eager", 8.0), ("default", 4.0)) for n in range(3)]
    training = Row("t", "ok", model="resnet50", data="synthetic", batch_size=1, compile_mode="eager",
                   step_time_ms_p50=20.0, device_name="GPU", num_devices=1)  # fmt: skip
    comparison = compare([*rows, training])
    assert [(group.kind, len(group.candidates)) for group in comparison.groups] == [("forward", 2), ("train", 1)]
    text = markdown_comparison(comparison)
    assert "Call with default: 2.0" in text
    assert "calls" in text.split("pays off after")[1].split("\n")[0]
    assert "| latency, mean of the stages' medians, ms | p90 ms | p99 ms | missed deadline |" in text
    assert "| 12.5 % |" in text
    page = html_comparison(comparison, {}, "calls")
    assert "Latency by shape of the inputs" in page
    assert "Calls served by each stage" in page
    assert "Time to reach a call" in page
    assert "<td>7.250</td>" in page
    assert "<td>default</td><td>3</td><td>5.500 to 11.000</td><td>0.900</td><td>25.0 %</td>" in page.replace("\n", "")
    assert "model=&lt;i&gt;small&lt;/i&gt;" in page
    assert "<i>" not in page


def test_the_terminal_shows_shapes_stages_and_misses(capsys, tmp_path):
    print_run(forward_row("default", 0, 4.0), tmp_path)
    said = capsys.readouterr().out
    assert "12.5 % of calls missed 10 ms" in said
    assert "25.0 % resnet50 default: effective default, graphs 3; p50 7.250 ms" in said
    assert "[1, 3, 8, 8]: p50 7.250 ms, p90 8.000 ms, p99 9.000 ms; 9 calls" in said
    assert "epoch" not in said


def test_a_stage_that_was_never_called_has_what_was_expected_of_it(capsys, tmp_path):
    row = forward_row("default", 0, 4.0)
    print_run(replace(row, chain=[row.chain[0], replace(row.chain[1], num_calls=0)]), tmp_path)
    assert "effective default, graphs 3; expected 5.500 to 11.000 ms" in capsys.readouterr().out


def test_a_chain_with_a_stage_in_another_mode_is_dropped_with_the_reason():
    row = forward_row("default", 0, 4.0)
    got = {"effective_mode": "eager", "effective_mode_reason": "nothing was compiled"}
    row = replace(row, chain=[row.chain[0], replace(row.chain[1], **got)])
    assert why_dropped(row) == "model=<i>small</i>: requested default, effective eager: nothing was compiled"


def test_the_row_of_a_job_that_has_not_started_has_its_settings(tmp_path):
    overrides = ["forward.deadline_ms=5", "data=synthetic", "data.batch_sizes=[2,4]"]
    with initialize_config_dir(str(CONF), version_base="1.3"):
        cfg = compose(FORWARD, overrides, return_hydra_config=True)
    sweep = Sweep("s", tmp_path, cfg, None, 1, (Slot(),))
    row = row_of_request(sweep, Job([], cfg, None, "", repeat=0, number="[1/1]"), tmp_path)
    assert (row.kind, row.deadline_ms) == ("forward", 5.0)
    assert (row.batch_size, row.batch_sizes) == (None, [2, 4])


def test_a_row_of_no_known_kind_is_refused():
    with pytest.raises(ValueError, match="kind = sideways: expected one of train, forward"):
        Row("r", "ok", kind="sideways")


def test_stages_of_one_network_have_the_same_parameters(bench, monkeypatch):
    nets = []
    monkeypatch.setattr("trainkit.training.checkpoint.load_parameters", lambda config, net: nets.append(net))
    bench(*EAGER, "forward.num_calls=1", "forward.deadline_ms=5", "forward.fallback=['amp=bf16']")
    first, second = (net.state_dict() for net in nets)
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_the_precision_of_matrix_products_is_restored(bench):
    precision = torch.get_float32_matmul_precision()
    stage = "forward.fallback=['amp.matmul_precision=high']"
    assert (
        bench(*EAGER, "amp.matmul_precision=medium", "forward.num_calls=2", "forward.deadline_ms=5", stage).status
        == "ok"
    )
    assert torch.get_float32_matmul_precision() == precision
