"""Policies: which calls run uncompiled, what the row says of them, and which steps are steady."""

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from tests.conftest import parameters
from tests.inference.test_run import composed
from trainkit.analysis.dropping import why_dropped
from trainkit.compiler import dynamo
from trainkit.compiler.compiler import Compiler
from trainkit.compiler.policies import Policies
from trainkit.config.schema import CompileConfig, DdpConfig, OnError
from trainkit.inference.run import run_forward
from trainkit.results.facts import Policy
from trainkit.results.row import Row
from trainkit.training.run import run

NETWORK = ("model=simple_net", "model.width=8", "data=synthetic", "data.image_size=4", "trainer.accelerator=cpu")
STATIC = ("compile.backend=eager", "compile.dynamic=false")


@pytest.fixture
def bench(tmp_path):
    """(overrides, ...) -> the row of calls with batches of 2, 3 and 4 samples in turn."""

    def called(*words: str, run_dir: Path = tmp_path / "run") -> Row:
        run_dir.mkdir(exist_ok=True)
        sizes = ("data.batch_sizes=[2,3,4]", "data.num_batches=60")
        return run_forward(composed(*NETWORK, *STATIC, *sizes, *words, run_dir=str(run_dir)))

    return called


class Doubled(nn.Module):
    def forward(self, inputs: Tensor) -> Tensor:
        return inputs * 2


def sizes_by_graph(compiler: Compiler, *sizes: int) -> list[int]:
    """The number of graphs after a call with each of these batch sizes."""
    graphs = []
    for size in sizes:
        assert torch.equal(compiler(torch.ones(size)), torch.full((size,), 2.0))
        graphs.append(dynamo.num_graphs())
    return graphs


def test_a_shape_is_compiled_after_so_many_calls_and_the_calls_before_are_not_steady(bench):
    row = bench("forward.num_calls=60", "compile.start=after:5")
    assert row.policies == [Policy("compile.start", 15, 0.25)]
    assert (row.num_eager_steps, row.num_superseded_steps, row.num_compiling_steps) == (15, 15, 3)
    assert row.num_steady_steps == 60 - 15 - 3 - row.num_warmup_steps
    assert (row.effective_mode, why_dropped(row)) == ("default", None)
    assert row.steps_time_s > 60 * row.step_time_ms / 1e3


def test_a_shape_that_comes_too_rarely_to_be_compiled_for_is_said_and_the_row_dropped(bench):
    row = bench("forward.num_calls=20", "compile.start=after:6")  # 7, 7 and 6 calls
    assert (row.num_graphs, row.effective_mode) == (2, "mixed")
    reason = "shapes whose last call ran uncompiled, by compile.start = after:6: 1 of 3"
    assert why_dropped(row) == f"requested default, effective mixed: {reason}"
    never = bench("forward.num_calls=6", "compile.start=after:6")
    assert (never.num_graphs, never.effective_mode) == (0, "eager")
    assert never.effective_mode_reason.endswith("after:6: 3 of 3")


def test_before_its_turn_a_shape_uses_a_variant_that_takes_it():
    with Compiler(CompileConfig(backend="eager", dynamic=True, start="after:2")) as compiler:
        compiler.apply(Doubled(), DdpConfig())
        assert sizes_by_graph(compiler, 4, 4, 4, 5, 6) == [0, 0, 1, 1, 1]
        assert compiler.facts().policies == [Policy("compile.start", 2, 0.4)]


@pytest.mark.parametrize("attempt", ["first", "second run of the process"])
def test_torchs_stance_runs_the_first_call_uncompiled_and_opens_what_differs_at_the_second(attempt):
    with Compiler(CompileConfig(backend="eager", start="eager_then_compile")) as compiler:
        compiler.apply(Doubled(), DdpConfig())
        assert sizes_by_graph(compiler, 4, 5, 6) == [0, 1, 1]
        assert compiler.facts().policies == [Policy("compile.start", 1, 1 / 3)]


def test_small_batches_run_uncompiled_in_steady_calls_as_the_setting_says(bench):
    row = bench("forward.num_calls=60", "compile.min_batch_size=3")
    assert row.policies == [Policy("compile.min_batch_size", 20, 1 / 3)]
    assert (row.num_graphs, row.num_eager_steps, row.num_superseded_steps) == (2, 20, 0)
    assert [latency.shape[0] for latency in row.latency_by_shape] == [2, 3, 4]
    assert all(latency.num_calls for latency in row.latency_by_shape)
    assert why_dropped(row) is None


def test_the_rest_of_an_epoch_runs_uncompiled_unless_a_variant_takes_it():
    uncompiled_calls = []
    config = CompileConfig(backend="eager", dynamic=False)
    with Compiler(config, on_eager=lambda: uncompiled_calls.append(1)) as compiler:
        compiler.apply(Doubled(), DdpConfig())
        assert sizes_by_graph(compiler, 4) == [1]
        assert torch.equal(compiler(torch.ones(3), is_rest=True), torch.full((3,), 2.0))
        assert dynamo.num_graphs() == 1
        assert sizes_by_graph(compiler, 3) == [2]
        compiler(torch.ones(3), is_rest=True)
        assert compiler.facts().effective_mode == "default"
    assert not uncompiled_calls  # which would be counted for a step


def test_the_variant_used_longest_ago_is_dropped_and_compiled_again():
    with Compiler(CompileConfig(backend="eager", dynamic=False, max_variants=2)) as compiler:
        compiler.apply(Doubled(), DdpConfig())
        assert sizes_by_graph(compiler, 2, 3, 2, 4, 2, 3) == [1, 2, 2, 3, 3, 4]
        assert compiler.facts().num_dropped_variants == 2
        assert sizes_by_graph(compiler, *range(5, 25))[-1] == 24  # above torch's own limit of 8


@pytest.mark.parametrize(("used", "num_graphs"), [(0.8, 0), (0.6, 1)])
def test_nothing_is_compiled_while_memory_is_short(used, num_graphs):
    config = CompileConfig(backend="eager", max_memory_frac=0.7)
    with Compiler(config, memory_frac=lambda device: used) as compiler:
        compiler.apply(Doubled(), DdpConfig())
        assert sizes_by_graph(compiler, 4, 4) == [num_graphs] * 2
        assert compiler.facts().policies[0].num_uncompiled == 2 * (1 - num_graphs)


def test_memory_is_asked_for_only_before_calls_that_may_need_a_compile():
    used_fracs = [0.9, 0.1, 0.9]
    config = CompileConfig(backend="eager", dynamic=False, max_memory_frac=0.7)
    with Compiler(config, memory_frac=lambda device: used_fracs.pop(0)) as compiler:
        compiler.apply(Doubled(), DdpConfig())
        assert sizes_by_graph(compiler, 4, 4, 4, 4, 5) == [0, 1, 1, 1, 1]
        assert compiler.facts().effective_mode_reason.endswith("compile.max_memory_frac = 0.7: 1 of 2")


class Breaks(nn.Module):
    def forward(self, inputs: Tensor) -> Tensor:
        if inputs.shape[0] == 4:
            torch._dynamo.graph_break()
        return inputs * 2


def test_a_call_that_cannot_be_compiled_runs_uncompiled_and_the_last_failure_ends_compiling():
    config = CompileConfig(backend="eager", dynamic=False, fullgraph=True, on_error=OnError["eager"], max_failures=2)
    with Compiler(config) as compiler:
        compiler.apply(Breaks(), DdpConfig())
        assert sizes_by_graph(compiler, 4, 5) == [0, 1]
        facts = compiler.facts()
        assert (facts.num_compile_failures, facts.effective_mode) == (1, "mixed")
        assert "compile.on_error = eager: 1 of 2 (Unsupported: " in facts.effective_mode_reason
        assert sizes_by_graph(compiler, 4, 5, 6) == [1, 1, 1]  # 5 would have a variant
        facts = compiler.facts()
        assert facts.num_compile_failures == 2
        assert facts.policies == [Policy("compile.on_error", 4, 0.8)]
        assert facts.effective_mode_reason.startswith("could not be compiled, went on uncompiled")


def test_a_training_starts_uncompiled_and_trains_as_eager_does(compose, tmp_path):
    words = (*NETWORK, "data.batch_size=4", "data.num_batches=8", "data.num_val_batches=2", "trainer.max_epochs=3")
    row = run(compose(*words, *STATIC, "compile.start=after:10", run_dir=tmp_path / "late"))
    assert (row.num_eager_steps, row.num_superseded_steps, row.num_compiling_steps) == (10, 10, 1)
    assert row.policies == [Policy("compile.start", 16, 16 / 30)]  # the validation has 6 calls
    assert row.effective_mode == "mixed"  # it was not compiled
    assert row.epoch_train_time_s is not None  # the third, in which nothing ran uncompiled
    run(compose(*words, "compile.mode=eager", run_dir=tmp_path / "eager"))
    for name, tensor in parameters(tmp_path / "late").items():
        torch.testing.assert_close(tensor, parameters(tmp_path / "eager")[name])


def test_without_a_policy_no_call_is_counted():
    assert Policies(CompileConfig(), lambda device: 0.0).in_effect == []
    with Compiler(CompileConfig(backend="eager")) as compiler:
        compiler.apply(Doubled(), DdpConfig())
        sizes_by_graph(compiler, 4)
        facts = compiler.facts()
        assert (facts.policies, facts.num_dropped_variants, facts.num_compile_failures) == (None, None, None)


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["compile.start=later"], "compile.start = later: expected at_once, after:N or eager_then_compile; try "),
        (["compile.start=after:0"], "compile.start = after:0: expected at_once"),
        (["compile.min_batch_size=0"], "compile.min_batch_size = 0: expected a whole number of at least 1"),
        (["compile.max_memory_frac=70"], "compile.max_memory_frac = 70.0: expected a fraction from 0 to 1"),
        (["compile.max_failures=3"], "compile.max_failures = 3: compile.on_error = raise ends the run at the first"),
        (["compile.max_variants=2", "compile.max_recompiles=2"], "compile.max_variants = 2: compiles dropped variants"),
        (
            ["compile.start=eager_then_compile", "compile.fullgraph=true"],
            "compile.start = eager_then_compile: torch ignores compile.fullgraph",
        ),
        (
            ["compile.start=after:9", "ddp.strategy=compiled"],
            "compile.start = after:9: may let a rank run uncompiled, which ddp.strategy = compiled cannot",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else " ".join(value),
)
def test_a_policy_that_cannot_be_is_refused(compose, words, complaint):
    with pytest.raises(ValueError, match=complaint.replace("[", r"\[")):
        run(compose(*words))
