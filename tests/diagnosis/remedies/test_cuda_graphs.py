"""Torch's reasons for skipped CUDA graphs, and their remedies."""

import random

import pytest

from trainkit.diagnosis.remedies.cuda_graphs import SKIP_REMEDIES, remedy_for_skip, skip_message
from trainkit.diagnosis.remedies.matching import matching

SKIPS = [
    ("skipping cudagraphs due to cpu device (arg0_1). Found from : \n File 'net.py', line 3", "tensor on the CPU"),
    ("CUDA graphs did not take effect: CUDA graphs need a CUDA device", "tensor on the CPU"),
    ("skipping cudagraphs due to multiple devices: device(type='cuda', index=0), cuda:1", "several devices"),
    ("skipping cudagraphs due to mutated inputs (1 instances). Found from : \n ...", "input that is written to"),
    ("skipping cudagraphs due to input storage mutation (1 instances)", "input that is written to"),
    ("skipping cudagraphs due to graph with symbolic shapes inputs and config....", "dynamic shapes"),
    (
        "skipping cudagraphs due to disabling cudagraphs due to incompatible op aten.nonzero.default",
        "operation that no CUDA graph holds",
    ),
    (
        "skipping cudagraph due to function 3 exceeding max re-recording limit (=128) on ...",
        "inputs that lie elsewhere each time",
    ),
    ("skipping cudagraphs due to cpp wrapper enabled", "C++ wrapper"),
    ("skipping cudagraphs due to cpp-wrapper does not support graph partition yet", "C++ wrapper"),
]


@pytest.mark.parametrize(("reason", "cause"), SKIPS)
def test_a_skipped_cuda_graph_has_exactly_one_remedy(reason, cause):
    assert [remedy.cause for remedy in matching(SKIP_REMEDIES, *skip_message(reason))] == [cause]
    assert remedy_for_skip(reason).cause == cause


def test_the_order_of_the_remedies_changes_nothing():
    for seed in range(5):
        shuffled = random.Random(seed).sample(SKIP_REMEDIES, len(SKIP_REMEDIES))
        for reason, cause in SKIPS:
            (remedy,) = matching(shuffled, *skip_message(reason))
            assert remedy.cause == cause


def test_the_code_that_torch_quotes_is_no_message():
    reason = "skipping cudagraphs due to cpu device (arg0_1). Found from : \n File 'net.py', line 3\n x = mutated(x)"
    assert remedy_for_skip(reason).cause == "tensor on the CPU"


def test_an_unknown_reason_has_a_remedy():
    assert remedy_for_skip("something new").cause == "CUDA graphs skipped"
