"""The one object that compiles, calls and reports: its start-up, its calls, what it restores."""

import os
import subprocess
import sys
import traceback

import pytest
import torch
from torch import Tensor, nn
from torch._inductor import cudagraph_trees

from trainkit.compiler.compiler import Compiler
from trainkit.config.schema import CompileConfig, DdpConfig, Mode, OnError
from trainkit.training.run import run


def test_the_start_up_is_apart_and_nothing_of_it_is_counted(compose):
    row = run(compose("compile.backend=aot_eager", "trainer.max_epochs=1", "trainer.limit_val_batches=0"))
    assert row.num_graphs == 1
    assert row.compile_startup_s > 0
    seen = []
    started = Compiler(CompileConfig(backend="aot_eager"), seen.append, seen.append)
    with started:
        started.start_up(torch.device("cpu"))
        assert (seen, started.facts().num_graphs) == ([], 0)


def test_the_start_up_waits_for_the_compile_workers_which_would_be_measured_with_the_steps():
    started = """
import torch
from torch._inductor.async_compile import AsyncCompile
from trainkit.compiler import startup
from trainkit.compiler.compiler import Compiler
from trainkit.config.schema import CompileConfig

startup.WORKERS_START_S = 600
AsyncCompile.wakeup()  # as inductor does at its first compile for a GPU
with Compiler(CompileConfig(backend="aot_eager"), print, print) as compiler:
    compiler.start_up(torch.device("cpu"))
    assert AsyncCompile._ready_future.done()
"""
    environment = {**os.environ, "TORCHINDUCTOR_COMPILE_THREADS": "2"}
    subprocess.run([sys.executable, "-c", started], check=True, env=environment)


class Doubled(nn.Module):
    def forward(self, inputs: Tensor) -> Tensor:
        return inputs * 2


@pytest.mark.parametrize(("mode", "num_marks"), [("eager", 0), ("default", 2)])
def test_each_call_of_what_is_compiled_begins_a_step_of_cuda_graphs(mode, num_marks, monkeypatch):
    marks = []
    monkeypatch.delitem(sys.modules, "torch._inductor.cudagraph_trees", raising=False)
    monkeypatch.setattr(torch.compiler, "cudagraph_mark_step_begin", lambda: marks.append(1))
    with Compiler(CompileConfig(mode=Mode[mode], backend="eager")) as compiler:
        compiler.apply(Doubled(), DdpConfig())
        for _ in range(2):
            compiler(torch.ones(2))
    assert len(marks) == num_marks


def test_options_reach_inductor_in_place_of_a_mode(needs_compiler):
    graphs = []
    config = CompileConfig(options={"post_grad_custom_pre_pass": graphs.append})
    with Compiler(config) as compiler:
        compiler.apply(Doubled(), DdpConfig())
        assert compiler(torch.ones(2)).tolist() == [2.0, 2.0]
        assert compiler.facts().effective_mode == "default"
    assert len(graphs) == 1


def test_cuda_graphs_that_options_request_and_that_took_no_effect_are_no_default_mode(needs_compiler):
    with Compiler(CompileConfig(options={"triton": {"cudagraphs": True}})) as compiler:
        compiler.apply(Doubled(), DdpConfig())
        compiler(torch.ones(3))
        facts = compiler.facts()
    assert (facts.effective_mode, facts.effective_mode_reason) == (
        "mixed",
        "CUDA graphs did not take effect: CUDA graphs need a CUDA device",
    )


def torch_settings() -> dict[str, object]:
    config = torch._dynamo.config
    return {
        "optimize_ddp": config.optimize_ddp,
        "recompile_limit": config.recompile_limit,
        "accumulated_recompile_limit": config.accumulated_recompile_limit,
        "listed_compiles": torch._dynamo.utils._compilation_metrics.maxlen,
        "cudagraph_skip": cudagraph_trees.log_cudagraph_skip_and_bump_counter,
        "stance": torch._dynamo.eval_frame._stance,
    }


def test_what_it_changes_in_torch_is_restored():
    before = torch_settings()
    config = CompileConfig(mode=Mode["reduce-overhead"], backend="eager", dynamic=False, max_recompiles=20)
    with Compiler(config) as compiler:
        compiler.apply(Doubled(), DdpConfig(optimize_ddp="no_optimization"))
        for size in range(2, 24):
            compiler(torch.ones(size))
        within = torch_settings()
        assert (within["optimize_ddp"], within["recompile_limit"]) == ("no_optimization", 22)
        assert [name for name in before if within[name] == before[name]] == ["accumulated_recompile_limit"]
    assert torch_settings() == before


class RecordsFrames(nn.Module):
    """Notes the functions between its caller's and its own."""

    def forward(self, inputs: Tensor) -> Tensor:
        self.stack = traceback.extract_stack()
        return inputs * 2


@pytest.mark.parametrize("mode", ["eager", "default"])
def test_one_call_of_trainkits_is_between_the_step_and_the_objective(mode):
    objective = RecordsFrames()
    objective.forward = torch.compiler.disable(objective.forward)
    with Compiler(CompileConfig(mode=Mode[mode], backend="eager")) as compiler:
        compiler.apply(objective, DdpConfig())
        compiler(torch.ones(2))
    trainkits = [frame.name for frame in objective.stack if f"{os.sep}trainkit{os.sep}" in frame.filename]
    assert trainkits == ["__call__"]


class Breaks(nn.Module):
    def forward(self, inputs: Tensor) -> Tensor:
        torch._dynamo.graph_break()
        return inputs * 2


def test_with_on_error_eager_it_goes_on_uncompiled_and_says_so():
    kinds, eager_calls = [], []
    config = CompileConfig(backend="eager", fullgraph=True, on_error=OnError["eager"])
    with Compiler(config, kinds.append, kinds.append, lambda: eager_calls.append(1)) as compiler:
        compiler.apply(Breaks(), DdpConfig())
        assert [compiler(torch.ones(2)).tolist() for _ in range(3)] == [[2.0, 2.0]] * 3
    assert kinds[-2:] == ["forward", "forward"]  # another program runs from there on
    assert len(eager_calls) == 3
    assert compiler.error.startswith("Unsupported: ")
