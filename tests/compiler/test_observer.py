"""Compiles are counted by their kind, and the steps that ran uncompiled."""

import pytest
import torch

from tests.networks import network
from trainkit.compiler.observer import compile_kind
from trainkit.training.run import run

IMAGES = ("model=simple_net", "model.width=8", "data=synthetic", "data.image_size=4", "trainer.limit_val_batches=0")
STATIC = ("compile.backend=eager", "compile.dynamic=false", "trainer.max_epochs=1")


@pytest.mark.parametrize(
    ("trigger", "compile_id", "kind"),
    [
        ("DYNAMO", "0/0", "forward"),
        ("DYNAMO", "3/0_1", "forward"),
        ("LAZY_BACKWARD", "0/0", "backward"),
        ("DYNAMO", "0/2", "recompile"),
        ("LAZY_BACKWARD", "0/1_1", "recompile"),
        ("CUDAGRAPH_RECORDING", "0/1", "cudagraph"),
        ("DYNAMO", "None", "forward"),
    ],
)
def test_what_compile_seconds_go_into(trigger, compile_id, kind):
    assert compile_kind(trigger, compile_id) == kind


def test_without_torchs_hook_the_steps_that_ran_eager_are_unknown(compose, monkeypatch):
    monkeypatch.delattr(torch._dynamo.eval_frame, "set_guard_complete_hook")
    row = run(compose(*IMAGES, "data.batch_sizes=[2,3,4]", "data.num_batches=6", *STATIC, "compile.max_recompiles=1"))
    assert (row.status, row.num_eager_steps, row.num_compiled_steps) == ("ok", None, None)
    assert row.num_recompiles == 1


def test_what_goes_on_uncompiled_is_counted(compose, capsys):
    words = ("compile.backend=eager", "compile.fullgraph=true", "compile.on_error=eager", "trainer.max_epochs=2")
    row = run(compose(network("PrintsLate"), *words))
    assert (row.num_compiled_steps, row.num_eager_steps) == (22, 22)
