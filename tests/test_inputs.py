"""Inputs that are a tensor, a tuple or a dict: in training, on two ranks, in calls, in programs and in a diagnosis."""

import pytest
import torch
from torch import nn

from tests.conftest import CONF
from trainkit.config.composition import FORWARD, compose_config
from trainkit.config.errors import ConfigError
from trainkit.diagnosis.diagnose import examine
from trainkit.diagnosis.trial import build_subject
from trainkit.inference.run import run_forward
from trainkit.inputs import call, map_tensors, shape_of, tensors_of
from trainkit.results.files import read_row
from trainkit.training.run import run

BERT = (
    "model=bert", "model.dim=16", "model.depth=1", "model.num_heads=2", "data=synthetic", "data.vocab_size=50",
    "data.num_classes=3", "data.seq_len=8", "data.batch_size=4", "data.num_batches=9", "compile.backend=aot_eager",
)  # fmt: skip
PADDED = (*BERT, "data.seq_lens=[3,6,8]", "data.padding=buckets", "data.buckets=[5,6]")  # lengths 5, 6, 8
SHORT = ("trainer.max_epochs=1", "data.num_val_batches=1")
BOTH_TENSORS = "compile.mark_dynamic=[{input: inputs, dim: 1}]"


@pytest.fixture
def bench(tmp_path):
    """(overrides, ...) -> the row of what bench.py does with them."""

    def called(*words: str):
        (tmp_path / "run").mkdir()
        words = ("logger=none", "trainer.accelerator=cpu", "forward.num_calls=9", *words)
        return run_forward(compose_config([*words], CONF, str(tmp_path / "run"), FORWARD))

    return called


def test_inputs_are_called_by_position_and_by_keyword_and_keep_their_nesting():
    weight, x = nn.functional.linear, torch.ones(2, 3)
    expected = x @ torch.ones(4, 3).T
    for inputs in ((x, torch.ones(4, 3)), [x, torch.ones(4, 3)], {"weight": torch.ones(4, 3), "input": x}):
        assert torch.equal(call(weight, inputs), expected)
        assert map_tensors(torch.Tensor.double, inputs).__class__ is inputs.__class__
        assert {tensor.dtype for tensor in tensors_of(map_tensors(torch.Tensor.double, inputs))} == {torch.float64}
    assert torch.equal(call(torch.neg, x), -x)
    assert tensors_of(({"a": x}, [x, (x,)], "no tensor", None)) == [x, x, x]


def test_shapes_tell_apart_what_is_other_work():
    short, long = torch.ones(2, 3), torch.ones(2, 5)
    assert shape_of(short) == shape_of({"input_ids": short, "attention_mask": short}) == (2, 3)
    assert shape_of((short, long)) == (2, 3, 2, 5) != shape_of((short, short))


def test_a_dict_trains_as_one_graph_and_as_eager(compose):
    row = run(compose(*PADDED, *SHORT, "compile.dynamic=true", "compile.fullgraph=true", "check=true"))
    assert (row.status, row.num_graphs, row.num_graph_breaks) == ("ok", 2, 0), row.error  # training and validation
    assert row.check_passed, row.check_reason
    assert row.recompile_shapes == [[[4, 8], [4, 8], [4]]]


@pytest.mark.parametrize("scope", ["step", "net"])
def test_a_marked_dimension_is_that_of_all_tensors(scope, compose):
    row = run(compose(*PADDED, *SHORT, BOTH_TENSORS, f"compile.scope={scope}"))
    assert (row.status, row.num_graphs) == ("ok", 2), row.error


def test_a_mark_that_targets_need_too_says_so(compose):
    both = r"compile.mark_dynamic, inputs 0: the network fixes it to 4, which targets have too; mark both"
    with pytest.raises(ConfigError, match=both):
        run(compose(*PADDED, *SHORT, "compile.mark_dynamic=[{input: inputs, dim: 0}]"))


def test_two_ranks_average_the_gradients_of_a_network_that_takes_keywords(train, tmp_path):
    words = (*BERT, *SHORT, "data.num_batches=4", "ddp.strategy=compiled", "compile.scope=net", "logger=none")
    done = train(*words, "hydra.run.dir=run", ranks=2)
    assert done.returncode == 0, done.stderr
    row = read_row(tmp_path / "run")
    assert (row.status, row.world_size, row.num_graph_breaks) == ("ok", 2, 0)


def test_a_policy_counts_calls_by_all_shapes(bench):
    row = bench(*PADDED, "compile.start=after:1")
    assert row.status == "ok", row.error
    assert [(policy.setting, policy.num_uncompiled) for policy in row.policies] == [("compile.start", 3)]
    assert [latency.shape for latency in row.latency_by_shape] == [[4, 5], [4, 6], [4, 8]]


@pytest.mark.parametrize("amp", ["off", "bf16"])
def test_an_exported_graph_takes_dicts_of_each_length(amp, bench):
    row = bench(*PADDED, "forward.engine=export", f"amp={amp}", "compile.dynamic=true", "check=true")
    assert (row.status, row.num_graphs) == ("ok", 1), row.error
    assert row.check_passed, row.check_reason


def test_windows_and_small_batches_take_dicts(bench):
    row = bench(*PADDED, "forward.timing=stream", "forward.calls_per_window=3", "compile.min_batch_size=5")
    assert (row.status, row.policies[0].uncompiled_frac) == ("ok", 1.0), row.error


def test_a_diagnosis_takes_dicts(compose):
    diagnosis = examine(build_subject(compose(*PADDED, "compile.dynamic=false")))
    assert [(phase.name, phase.num_graphs, phase.error) for phase in diagnosis.phases] == [
        ("forward", 3, None),
        ("training", 3, None),
    ]
    shapes = [shape for finding in diagnosis.findings for shape in finding.recompile_shapes]
    assert [[4, 6], [4, 6], [4]] in shapes
