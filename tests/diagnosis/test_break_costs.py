"""What a phase gains from being compiled, and the costs of its graph breaks."""

import re

import pytest
import torch

from tests import defects
from tests.diagnosis.conftest import FILE, line_of
from trainkit.diagnosis import break_costs, trial
from trainkit.diagnosis.diagnose import diagnose, examine
from trainkit.diagnosis.findings import Phase
from trainkit.diagnosis.profiling import ProfiledRound
from trainkit.stats import Estimate

RAISES = "eager runs, the compiled network raises TypeError: only 0-dimensional arrays can be converted .*; at "


def test_a_network_that_raises_only_without_a_break_says_so_and_where(subject_of):
    subject = subject_of("OnlyEagerWithoutBreak")
    broken = (defects.__file__, line_of("# left out, the rest is compiled"))
    variant = break_costs.Variant("without it", subject.config.compile, broken)
    variant.run_round(subject, "forward")
    at = f"tests/defects.py:{line_of('# compiled without the break, it raises')}: .*"
    assert re.fullmatch(f"without it: {RAISES}{at}", variant.failed)


def test_costs_and_shares_are_measured_on_copies(subject_of, own_backend, caplog, monkeypatch):
    monkeypatch.setattr(break_costs, "NUM_ROUNDS", 3)
    monkeypatch.setattr(break_costs, "NUM_TIMED", 5)
    caplog.set_level("INFO", "trainkit")
    subject = subject_of("ManyDefects", f"compile.backend={own_backend}")
    before = {name: tensor.clone() for name, tensor in subject.net.state_dict().items()}
    diagnosis = diagnose(subject)
    branch, shape = (finding for finding in diagnosis.findings if finding.kind == "graph break")
    assert (branch.cause, branch.cost_unknown) == ("tensor branch", None)
    assert branch.cost_ms.low < branch.cost_ms.value < branch.cost_ms.high
    assert (shape.cause, shape.cost_ms) == ("data-dependent shape", None)
    assert shape.cost_unknown == "its result is a tensor, or differs each time it runs"
    for phase in diagnosis.phases:
        for measured in (phase.step_time_ms, phase.eager_step_time_ms, phase.gain):
            assert 0 < measured.low < measured.value < measured.high
        assert 0 < phase.compiled_frac.low <= phase.compiled_frac.value <= phase.compiled_frac.high <= 1
    forward, training = (phase.optimizer_frac for phase in diagnosis.phases)
    assert forward.high == 0 < training.low < training.high < 1
    assert all(torch.equal(tensor, before[name]) for name, tensor in subject.net.state_dict().items())
    expected = [f"training: measuring without break {n} of 2 ({FILE}:{f.line})" for n, f in ((1, branch), (2, shape))]
    assert [message for message in caplog.messages if "without break" in message] == expected
    assert {f"{phase.name}: measuring, round 3 of 3" for phase in diagnosis.phases} <= set(caplog.messages)


@pytest.mark.parametrize("overrides", [[], ["compile.scope=blocks"]], ids=["step", "blocks"])
def test_a_cost_is_the_difference_within_rounds_whatever_drifts(overrides, subject_of, own_backend, monkeypatch):
    monkeypatch.setattr(trial, "NUM_WARMUP", 1)
    monkeypatch.setattr(break_costs, "NUM_ROUNDS", 3)
    as_written, timed = defects.halved.__code__, []

    def step_ms(self, num_steps):
        timed.append(defects.halved.__code__ is not as_written)  # without the branch
        return [100 * ((len(timed) - 1) // 3) + (7 if timed[-1] else 10)]

    monkeypatch.setattr(trial.Trial, "step_ms", step_ms)
    monkeypatch.setattr(break_costs, "profile_round", lambda trial: ProfiledRound(0.5, 0.25, 75.0))
    subject = subject_of("Blocks", f"compile.backend={own_backend}", *overrides)
    (branch,) = examine(subject).findings
    phase, (costed,) = break_costs.measure_phase(subject, Phase("training"), [branch])
    assert (phase.gain, phase.compiled_frac) == (Estimate(1, 1, 1), Estimate(0.5, 0.5, 0.5))
    assert phase.device_busy_frac == Estimate(75 / 110, 75 / 210, 1)  # compiled: 10 ms, 110 ms, 210 ms
    assert timed[:6] == [False, False, True, True, False, False]  # compiled, eager, without it; then backwards
    assert costed.cost_ms == Estimate(3, 3, 3)
