"""What the advice of a race says of its goal, its modes and the training, on a machine that is made up."""

from dataclasses import replace
from pathlib import Path

from tests.tuning.machine import Machine
from tests.tuning.test_plan import plan
from trainkit.analysis.advice import Advice
from trainkit.config.factors import Factor, FactorValue
from trainkit.report.advice import advice_sentence
from trainkit.tuning.advise import advice_of
from trainkit.tuning.goal import Goal

MODE = Factor("compile.mode", {"default": FactorValue()})
SIZES = Factor("data.batch_size", {"32": FactorValue(), "64": FactorValue()}, changes_training=True, is_named=True)


def raced(folder: Path, goal: Goal) -> Advice:
    machine = Machine()
    advisor = machine.advisor(folder, budget_s=3600, goal=goal, factors=[MODE, SIZES])
    advisor.run(machine.measure)
    return advice_of(advisor, replace(plan(), goal=goal))


def test_a_batch_size_that_is_chosen_changes_the_training(tmp_path: Path):
    """Half of the samples take three quarters of the time, but the least memory is the goal."""
    advice = raced(tmp_path, Goal(batch_size=64, minimize="memory", slower_frac=0.6))
    assert advice.choice.overrides == ("compile.mode=default", "data.batch_size=32")
    assert advice.changes_training == ("data.batch_size=32",)
    sentence = advice_sentence(advice)
    assert ": 2.00 GiB in place of 4.00 GiB at 0.89x [" in sentence
    assert " faster, and nothing that could be advised takes less memory; " in sentence
    assert sentence.endswith("; changes the training: data.batch_size=32")


def test_a_choice_with_the_batch_size_that_the_race_began_with_does_not_change_the_training(tmp_path: Path):
    advice = raced(tmp_path, Goal(batch_size=64))
    assert advice.choice.overrides == ("compile.mode=default",)
    assert advice.changes_training == ()
    assert not advice.minimizes_memory
    assert advice.batch_mode == "default"
