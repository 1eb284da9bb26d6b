"""The kernels that autotuning chose."""

import os

import pytest
import torch
from torch import Tensor, nn
from torch._inductor.async_compile import AsyncCompile
from torch._inductor.runtime import compile_tasks
from torch._inductor.select_algorithm import get_algorithm_selector_cache

from trainkit.compiler import private_names
from trainkit.compiler.caches import compile_cache
from trainkit.compiler.compiler import Compiler
from trainkit.compiler.inductor import on_autotuning, use_ptxas_of_workers
from trainkit.config.schema import CompileConfig, DdpConfig, Mode
from trainkit.results.effective import CompileFacts
from trainkit.results.facts import GraphSize
from trainkit.training.run import run

AUTOTUNED = Mode["max-autotune-no-cudagraphs"]


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


def test_this_process_and_its_workers_take_one_ptxas(monkeypatch):
    """Without use_ptxas_of_workers it fails in torch 2.11 and 2.12 for CUDA 13."""
    monkeypatch.delenv("TRITON_PTXAS_PATH", raising=False)
    compile_tasks._set_triton_ptxas_path.cache_clear()
    use_ptxas_of_workers()
    assert AsyncCompile.process_pool().submit(os.getenv, "TRITON_PTXAS_PATH").result() == os.getenv("TRITON_PTXAS_PATH")


@pytest.mark.gpu
def test_autotuning_finds_the_kernels_that_the_workers_have_compiled(compose):
    """In a cold cache: all but those that are compiled for the first time outside of autotuning."""
    from triton import knobs

    hits = []

    def listen(src, metadata, metadata_group, times, cache_hit):
        if src.name.startswith("triton_mm"):
            hits.append(cache_hit)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(knobs.compilation, "listener", listen)
        row = run(compose("compile.mode=max-autotune-no-cudagraphs", "compile.cache=cold", "trainer.accelerator=gpu"))
    assert row.status == "ok"
    assert hits
    assert all(hits)
