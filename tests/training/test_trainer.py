"""Settings of the Trainer reach the steps."""

import pytest
import torch

from tests.networks import network
from trainkit.training.run import run


@pytest.mark.parametrize("deterministic", [True, False])
def test_deterministic_holds_for_the_run_and_not_after_it(compose, deterministic):
    requested = f"trainer.deterministic={deterministic}"
    row = run(compose(network("ReportsDeterministic"), requested, "compile.mode=eager", "trainer.max_epochs=1"))
    assert row.error.startswith(f"ArithmeticError: deterministic: {deterministic} (at ")
    assert not torch.are_deterministic_algorithms_enabled()
