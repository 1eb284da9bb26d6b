"""The sentence, the table and the page of a race."""

from dataclasses import replace
from io import StringIO
from pathlib import Path

from rich.console import Console

from tests.sweeps import HOSTILE
from trainkit.analysis.advice import Advice, Effect, Round, Tried
from trainkit.config.factors import LeftOut
from trainkit.report.advice import advice_sentence, print_advice, write_advice
from trainkit.report.plots.races import plot_race
from trainkit.results.ledger import Measurement
from trainkit.stats import Ratio

JOB = Measurement(
    overrides=[], repeat=0, is_final=False, run_id="r", status="ok", wall_s=1.0, used_s=1.0, figure=1.0,
    samples_per_s=1000.0, compile_s=0.0, peak_bytes=2**30,
)  # fmt: skip
EAGER = Tried("eager", ("compile.mode=eager",), (JOB,), None, (1.38, 1.46), "slower", False, None)
BEST = Tried("default, fused", (), (JOB,), Ratio(1.42, 1.40, 1.44, 0.002, True), (1.0, 1.0), "chosen", False, None)
JUMPS = Tried("default", (), (JOB,), Ratio(1.2, 1.1, 1.3, 0.002, True), (1.1, 1.3), "open", True, None)
FAILED = Tried("blocks", (), (replace(JOB, figure=None),), None, None, "excluded", False, "oom: no memory")
ADVICE = Advice(
    goal="the time of a sample in steady steps",
    tried=(EAGER, JUMPS, FAILED, BEST),
    base_label="eager",
    choice=BEST,
    is_decided=True,
    is_confirmed=True,
    most_gain=0.017,
    used_s=840.0,
    budget_s=1200.0,
    not_tried=(LeftOut("max-autotune", "needs about 9.0 min"),),
    left_out=(LeftOut("amp", "changes the training"),),
    effects=(Effect("default", "eager", Ratio(1.2, 1.1, 1.3, 0.002, True)),),
    rounds=(
        Round("round 1", "default, fused", {"eager": (0.5, 2.0), "default, fused": (1.0, 1.0)}, ()),
        Round(
            "final", "default, fused", {"eager": (1.38, 1.46), "default, fused": (1.0, 1.0)}, ("eager",), ("blocks",)
        ),
    ),
)


def printed(advice: Advice) -> list[str]:
    console = Console(file=StringIO(), width=120)
    print_advice(advice, console)
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


def test_the_sentence_has_the_gain_the_guarantee_the_budget_and_what_was_not_tried():
    assert advice_sentence(ADVICE) == (
        "default, fused: 1.42x [1.40, 1.44] of eager; with 95 % confidence nothing tried is more than 1.7 % better; "
        "14 min of 20 min used; not tried: max-autotune (needs about 9.0 min)"
    )


def test_without_a_difference_the_advice_is_to_stay():
    stays = replace(ADVICE, choice=EAGER, tried=(replace(EAGER, outcome="chosen"), JUMPS), not_tried=())
    assert advice_sentence(stays) == (
        "no measurable difference of use: stay with eager; with 95 % confidence nothing tried is more than 1.7 % "
        "better; 14 min of 20 min used"
    )
    slower = replace(stays, most_gain=-0.1)
    assert advice_sentence(slower).startswith("stay with eager: with 95 % confidence nothing tried is better; ")


def test_what_is_not_decided_is_not_named_a_winner():
    undecided = replace(ADVICE, is_decided=False, most_gain=0.083, not_tried=())
    assert advice_sentence(undecided).startswith(
        "best so far default, fused: 1.42x [1.40, 1.44] of eager; undecided: something tried may be up to 8.3 % better"
    )
    capped = replace(undecided, capped_at=16)
    assert "; undecided after 16 jobs of each in question, the most that a setting gets: something " in advice_sentence(
        capped
    )
    unconfirmed = replace(ADVICE, is_confirmed=False)
    assert advice_sentence(unconfirmed).startswith(
        "best so far default, fused: 1.42x [1.40, 1.44] of eager; unconfirmed: not all jobs that a winner gets in the "
    )
    unstable = replace(undecided, choice=replace(BEST, is_unstable=True))
    assert "; unstable: it jumps between two values, so it is no winner; " in advice_sentence(unstable)
    unknown = replace(undecided, most_gain=float("inf"))
    assert "; undecided: too few jobs to tell what is best; " in advice_sentence(unknown)
    alone = replace(ADVICE, is_decided=True, tried=(replace(EAGER, outcome="chosen"), FAILED), choice=EAGER)
    assert advice_sentence(alone).startswith("eager: nothing else was measured; ")
    nothing = replace(ADVICE, choice=None, tried=(FAILED,))
    assert advice_sentence(nothing).startswith("nothing that was tried can be advised; ")


def test_numbers_that_could_not_be_compared_are_said():
    unchecked = replace(BEST, jobs=(JOB, replace(JOB, unchecked="random numbers")))
    advice = replace(ADVICE, choice=unchecked, tried=(EAGER, unchecked))
    assert "; its numbers could not be compared with eager's: random numbers; 14 min of" in advice_sentence(advice)
    assert any(line.endswith("chosen; numbers not compared with eager's") for line in printed(advice))


def test_the_table_has_the_chosen_settings_first_and_says_why_others_are_out():
    lines = printed(ADVICE)
    assert lines[1].startswith("default, fused      1,000  1.42x [1.40, 1.44]")
    assert lines[1].endswith("chosen")
    outcomes = " ".join(line[60:].strip() for line in lines)
    assert "undecided; unstable: judged by the slower of two values, and no winner" in outcomes
    assert "oom: no memory" in outcomes
    assert "default over eager: 1.20x [1.10, 1.30]." in lines
    assert not any(line.startswith("The largest batch") for line in lines)
    assert "The largest batch size that was tried and fits: 448." in printed(replace(ADVICE, largest_batch=448))
    assert lines[-1] == advice_sentence(ADVICE)


def test_the_page_has_the_rounds_and_their_reasons(tmp_path: Path):
    page = write_advice(tmp_path, ADVICE, "resnet18 on digits: a race").read_text()
    assert "<td>0.50 to 2.00</td><td>out: 1.38 to 1.46</td>" in page
    assert "<td>leads</td><td>leads</td>" in page
    assert "<td>blocks</td><td></td><td>excluded</td>" in page
    assert "<tr><td>max-autotune</td><td>needs about 9.0 min</td></tr>" in page
    assert "<tr><td>amp</td><td>changes the training</td></tr>" in page


def test_the_plot_has_each_interval_up_to_the_one_that_puts_the_arm_out():
    after = Round("final", "default, fused", {"eager": (1.5, 1.6), "default, fused": (1.0, 1.0)}, ("eager",))
    plot = plot_race((*ADVICE.rounds, after), ADVICE.tried, "race")
    assert "Intervals round by round: eager 1.38 to 1.46; default, fused leads" in plot.svg
    unknown = Round("round 1", "", {"eager": (0.0, float("inf"))}, ())
    assert plot_race((unknown,), ADVICE.tried, "race") is None


def test_no_label_and_no_reason_becomes_markup(tmp_path: Path):
    tried = tuple(replace(FAILED, label=text, reason=text) for text in HOSTILE)
    page = write_advice(tmp_path, replace(ADVICE, tried=(*tried, BEST)), "<script>").read_text()
    assert "<script" not in page
    assert "\x1b" not in page
