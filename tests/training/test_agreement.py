"""Do two real ranks train the same network? Some that do not are planted."""

import pytest
from torch._inductor.codecache import PyCodeCache

from tests.networks import network
from trainkit.compiler.caches import compile_cache
from trainkit.compiler.generated_code import CodeAgreement, CompiledCode, compare_code, compiled_code, digest
from trainkit.results.files import read_row

QUICK = ("trainer.max_epochs=1", "trainer.limit_train_batches=3", "logger=none", "check=true", "hydra.run.dir=run")
HEAD = """import os, torch
from torch.nn.parallel import DistributedDataParallel
from tests.networks import Plain
from trainkit.training.task import Task
RANK = int(os.environ.get("RANK", 0))
"""
NOT_REDUCED = """
Task._ddp_params_and_buffers_to_ignore = ["objective.net.fc.bias"]
Net = Plain
"""
SUMMED = """
def sums(state, bucket):
    reduced = torch.distributed.all_reduce(bucket.buffer(), async_op=True).get_future()
    return reduced.then(lambda future: future.value()[0])
init = DistributedDataParallel.__init__
def init_with_hook(self, *arguments, **options):
    init(self, *arguments, **options)
    self.register_comm_hook(None, sums)
DistributedDataParallel.__init__ = init_with_hook
Net = Plain
"""
PYTHON_REDUCER = """
init = DistributedDataParallel.__init__
def init_with_python_reducer(self, *arguments, **options):
    init(self, *arguments, **options)
    assert self._use_python_reducer
DistributedDataParallel.__init__ = init_with_python_reducer
Net = Plain
"""
ANOTHER_GRAPH = """
class Net(Plain):
    def forward(self, images):
        logits = super().forward(images)
        if RANK == 1 and self.training:
            torch._dynamo.graph_break()
        return logits + 0
"""


@pytest.fixture
def row_of_two_ranks(train, tmp_path):
    """(program of a module with a Net, words) -> the row of two ranks that trained it, and checked."""

    def trained(program: str, *words: str):
        (tmp_path / "mine.py").write_text(HEAD + program)
        done = train("model._target_=mine.Net", *QUICK, *words, ranks=2)
        row = read_row(tmp_path / "run")
        assert row is not None, done.stderr
        assert (row.status, row.world_size) == ("ok", 2), done.stderr
        return row

    return trained


def test_ranks_of_an_ordinary_run_agree(row_of_two_ranks, needs_compiler):
    row = row_of_two_ranks("Net = Plain")
    found = (row.check_gradients_agree, row.check_graphs_agree, row.check_kernels_agree, row.check_ranks_reason)
    assert found == (True, True, True, None)
    assert 0 <= row.check_ranks_grad_rel_diff < 1e-5


def test_a_gradient_that_is_not_reduced_is_found(row_of_two_ranks):
    row = row_of_two_ranks(NOT_REDUCED, "compile.backend=eager")
    assert row.check_gradients_agree is False
    assert row.check_ranks_reason == "gradients of fc.bias are not the same on all ranks in step 1"
    assert row.check_passed is True


def test_equal_gradients_that_are_not_the_mean_are_found(row_of_two_ranks):
    row = row_of_two_ranks(SUMMED, "compile.mode=eager")
    assert (row.check_gradients_agree, row.check_graphs_agree) == (False, None)
    assert row.check_ranks_reason.endswith("differ by 1.0e+00 from the mean of what each rank computes")


def test_the_python_reducer_beside_a_compiled_network_leaves_equal_gradients(row_of_two_ranks):
    """https://github.com/pytorch/pytorch/issues/109774 tells of gradients that are not reduced unless the DDP wrapper
    itself is compiled, which trainkit's is not. Torch 2.13 reduces them."""
    row = row_of_two_ranks(
        PYTHON_REDUCER, "compile.backend=aot_eager", "compile.scope=net", "ddp.optimize_ddp=python_reducer"
    )
    found = (row.check_passed, row.check_gradients_agree, row.check_graphs_agree, row.check_ranks_reason)
    assert found == (True, True, True, None)
    assert row.check_ranks_grad_rel_diff < 1e-5


def test_a_rank_that_compiled_another_graph_is_found(row_of_two_ranks):
    row = row_of_two_ranks(ANOTHER_GRAPH, "compile.backend=eager")
    assert (row.check_gradients_agree, row.check_graphs_agree, row.check_kernels_agree) == (True, False, None)
    assert row.check_ranks_reason == "graphs: rank 0 1, rank 1 3"


def test_code_of_an_earlier_run_whose_cold_cache_is_gone_is_passed_over():
    code_before = compiled_code()
    with compile_cache("cold"):
        PyCodeCache.load("def call(inputs): pass")
        assert len(compiled_code().digests) == len(code_before.digests) + 1
    assert compiled_code().digests == code_before.digests


def test_one_rank_has_nobody_to_agree_with(compose):
    from trainkit.training.run import run

    row = run(compose(network("Plain"), "compile.backend=eager", *QUICK[:2], "check=true"))
    assert (row.check_passed, row.check_gradients_agree, row.check_graphs_agree) == (True, None, None)


# What is the same code


CODE = """# AOT ID: ['0_forward']
triton_ = async_compile.triton('triton_', '''
    # kernel path: /tmp/torchinductor_user/xy/xyz.py
    meta={{'device': DeviceProperties(type='cuda', index={index})}}, num_warps={warps}
''')
with torch.cuda._DeviceGuard({index}):
    stream{index} = get_raw_stream({index})
    buf0 = empty_strided_cuda((4, ), device='cuda:{index}')
    triton_.run(buf0, 4, stream=stream{index})
"""


def test_code_for_another_gpu_is_the_same_and_another_kernel_is_not():
    first = digest(CODE.format(index=0, warps=4))
    assert digest(CODE.format(index=13, warps=4)) == first
    assert digest(CODE.format(index=0, warps=4).replace("/tmp/torchinductor_user", "/var")) == first
    assert digest(CODE.format(index=0, warps=8)) != first


@pytest.mark.parametrize(
    ("second", "found"),
    [
        (CompiledCode(2, ("a", "b")), CodeAgreement(True, True)),
        (CompiledCode(3, ("a", "b", "b")), CodeAgreement(False, None, "graphs: rank 0 2, rank 1 3")),
        (
            CompiledCode(2, ("a", "c")),
            CodeAgreement(True, False, "rank 1 runs other kernels than rank 0 in 1 graphs"),
        ),
        (CompiledCode(2, None), CodeAgreement(True, None, "this torch does not report generated code")),
        (CompiledCode(None, None), CodeAgreement(None, None, "this torch does not report graphs")),
    ],
)
def test_what_ranks_compiled_is_compared(second, found):
    assert compare_code([CompiledCode(2, ("a", "b")), second]) == found


def test_without_inductor_kernels_are_unknown():
    assert compare_code([CompiledCode(2, ())] * 2) == CodeAgreement(True, None)
