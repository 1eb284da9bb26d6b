"""The kernels that autotuning chose."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch._inductor.select_algorithm import get_algorithm_selector_cache

from tests.conftest import ROOT
from trainkit.compiler import private_names
from trainkit.compiler.caches import compile_cache
from trainkit.compiler.compiler import Compiler
from trainkit.compiler.inductor import on_autotuning
from trainkit.config.schema import CompileConfig, DdpConfig, Mode
from trainkit.results.effective import CompileFacts
from trainkit.results.facts import GraphSize

AUTOTUNED = Mode["max-autotune-no-cudagraphs"]

PTXAS = """
import os
from torch._inductor import config
from torch._inductor.async_compile import AsyncCompile
from trainkit.compiler.compiler import Compiler
from trainkit.config.schema import CompileConfig

if __name__ == "__main__":
    config.compile_threads = 2
    Compiler(CompileConfig())
    print(os.getenv("TRITON_PTXAS_PATH"))
    print(AsyncCompile.process_pool().submit(os.getenv, "TRITON_PTXAS_PATH").result())
"""
LISTENING = """
import runpy, sys
from triton import knobs

def listen(src, metadata, metadata_group, times, cache_hit):
    print(f"kernel {src.name}: {cache_hit}", file=sys.stderr)

if __name__ == "__main__":
    knobs.compilation.listener = listen
    del sys.argv[0]
    runpy.run_path(sys.argv[0], run_name="__main__")
"""


class Products(nn.Module):
    """A batched product of matrices that are no parameters: on a CPU inductor has a kernel of its own for it."""

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        return torch.bmm(a, b).relu()


def facts_of_call(config: CompileConfig) -> CompileFacts:
    with Compiler(config) as compiler, torch.no_grad():
        compiler.apply(Products(), DdpConfig())
        compiler(torch.ones(3, 24, 24), torch.ones(3, 24, 24))
        return compiler.facts()


def test_the_kernel_that_autotuning_chose_is_known_unless_the_graph_is_from_the_cache(needs_compiler):
    config = CompileConfig(mode=AUTOTUNED, dynamic=False)
    before, begun = list(get_algorithm_selector_cache().preprocessing_fns), []
    with compile_cache("cold"), on_autotuning(begun.append):
        first, second = facts_of_call(config), facts_of_call(config)
    assert get_algorithm_selector_cache().preprocessing_fns == before
    assert len(begun) == 1  # an operation, and the number of its kernels
    assert begun[0] > 1
    assert (first.cache_found, first.graph_sizes) == ("cold", [GraphSize(num_operations=2, num_inputs=2)])
    (kernel,) = first.tuned_kernels
    assert (kernel.operation, kernel.num_operations) == ("bmm", 1)
    assert kernel.kernel == "bmm" or kernel.kernel.startswith("cpp_CppMicroGemm")
    assert not kernel.kernel[-1].isdigit()
    assert get_algorithm_selector_cache().feedback_saver_fns == []
    assert (second.cache_found, second.tuned_kernels) == ("warm", None)


def test_without_autotuning_no_kernel_is_chosen():
    assert facts_of_call(CompileConfig(backend="eager")).tuned_kernels is None


def test_a_torch_that_does_not_report_autotuning_leaves_it_unknown(monkeypatch):
    monkeypatch.delattr(torch._inductor.select_algorithm, "get_algorithm_selector_cache")
    assert private_names.find("get_algorithm_selector_cache") is None
    assert facts_of_call(CompileConfig(mode=AUTOTUNED, backend="eager")).tuned_kernels is None


def test_this_process_and_its_workers_take_one_ptxas(tmp_path: Path):
    """It fails in torch 2.11 and 2.12 for CUDA 13 if a compiler does not see to it."""
    script = tmp_path / "ptxas.py"
    script.write_text(PTXAS)
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=True)
    here, in_worker = done.stdout.splitlines()
    assert here == in_worker


@pytest.mark.gpu
@pytest.mark.parametrize("command", ["train.py", "scripts/bench.py"])
def test_autotuning_finds_the_kernels_that_the_workers_have_compiled(command: str, tmp_path: Path):
    script = tmp_path / "listening.py"
    script.write_text(LISTENING)
    settings = ("compile.mode=max-autotune-no-cudagraphs", "compile.cache=cold", "logger=none")
    command_line = [sys.executable, script, ROOT / command, *settings]
    done = subprocess.run(command_line, cwd=tmp_path, capture_output=True, text=True, check=True)
    hits = re.findall(r"^kernel triton_mm\w*: (\w+)$", done.stderr, re.MULTILINE)
    assert set(hits) == {"True"}
