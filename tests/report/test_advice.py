"""The sentence, the table and the page of a race."""

from dataclasses import replace
from io import StringIO
from pathlib import Path

from rich.console import Console

from tests.sweeps import HOSTILE
from trainkit.analysis.advice import Advice, Effect, Round, Tried, tried_arms
from trainkit.analysis.arms import Arm
from trainkit.analysis.race import Race
from trainkit.config.factors import LeftOut
from trainkit.report.advice import advice_sentence, bounds_text, print_advice, write_advice
from trainkit.report.plots.races import plot_race
from trainkit.results.ledger import Measurement
from trainkit.stats import Ratio

JOB = Measurement(
    overrides=[], repeat=0, is_final=False, run_id="r", status="ok", wall_s=1.0, used_s=1.0, figure=1.0,
    samples_per_s=1000.0, compile_s=0.0, peak_bytes=2**30,
)  # fmt: skip
EAGER = Tried("eager", ("compile.mode=eager",), (JOB,), None, (0.68, 0.72), "slower", False, None)
BEST = Tried(
    "default, fused", (), (JOB,), Ratio(1.42, 1.40, 1.44, 0.002, True), (1.0, 1.0), "chosen", False, None, True
)
JUMPS = Tried("default", (), (JOB,), Ratio(1.2, 1.1, 1.3, 0.002, True), (0.8, 1.01), "no_better", True, None)
STEADY = replace(JUMPS, is_unstable=False)
FAILED = Tried("blocks", (), (replace(JOB, figure=None),), None, None, "excluded", False, "oom: no memory")
ADVICE = Advice(
    goal="the time of a sample in steady steps",
    tried=(EAGER, JUMPS, FAILED, BEST),
    base_label="eager",
    choice=BEST,
    is_decided=True,
    is_confirmed=True,
    most_gain=0.017,
    tolerance=0.02,
    used_s=840.0,
    budget_s=1200.0,
    not_tried=(LeftOut("max-autotune", "needs about 9.0 min"),),
    left_out=(LeftOut("amp", "changes the training"),),
    effects=(Effect("default", "eager", Ratio(1.2, 1.1, 1.3, 0.002, True)),),
    rounds=(
        Round("round 1", "default, fused", {"eager": (0.5, 2.0), "default, fused": (1.0, 1.0)}, ()),
        Round(
            "final", "default, fused", {"eager": (0.68, 0.72), "default, fused": (1.0, 1.0)}, ("eager",), ("blocks",)
        ),
    ),
)
STEADY_ADVICE = replace(ADVICE, tried=(EAGER, STEADY, FAILED, BEST))


def printed(advice: Advice) -> list[str]:
    console = Console(file=StringIO(), width=120)
    print_advice(advice, console)
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


def outcomes_of(lines: list[str]) -> str:
    """The last column of the table, whose cells are folded."""
    start = lines[0].index("outcome")
    return " ".join(line[start:] for line in lines)


def test_the_sentence_has_the_gain_the_guarantee_the_budget_and_what_was_not_tried():
    assert advice_sentence(STEADY_ADVICE) == (
        "default, fused: 1.42x [1.40, 1.44] of eager; with 95 % confidence nothing tried is more than 1.7 % better; "
        "14 min of 20 min used; not tried: max-autotune (needs about 9.0 min)"
    )


def test_a_winner_that_nothing_reaches_is_said_in_plain_words():
    text = advice_sentence(replace(STEADY_ADVICE, most_gain=-0.2))
    assert "of eager; with 95 % confidence nothing tried is better; " in text


def test_the_sentence_says_that_numbers_were_not_compared_and_what_was_ended():
    text = advice_sentence(replace(STEADY_ADVICE, is_unchecked=True))
    assert "; its numbers were not compared with eager's; 14 min of 20 min used; " in text
    hung = replace(
        FAILED, jobs=(replace(JOB, figure=None, excludes=True, share_s=120.0),), reason="timeout: stopped after 120 s"
    )
    text = advice_sentence(replace(STEADY_ADVICE, tried=(EAGER, hung, BEST)))
    assert "; ended: blocks (timeout: stopped after 120 s); not tried: max-autotune" in text


def test_without_a_difference_the_advice_is_to_stay():
    stays = replace(ADVICE, choice=EAGER, tried=(replace(EAGER, outcome="chosen"), STEADY), not_tried=())
    assert advice_sentence(stays) == (
        "no measurable gain: stay with eager; with 95 % confidence nothing tried is more than 1.7 % better; "
        "14 min of 20 min used"
    )
    slower = replace(stays, most_gain=-0.1)
    assert advice_sentence(slower).startswith("stay with eager; with 95 % confidence nothing tried is better; ")


def test_what_is_not_decided_is_not_named_a_winner():
    undecided = replace(STEADY_ADVICE, is_decided=False, most_gain=0.083, not_tried=())
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
    eager = replace(EAGER, outcome="chosen")
    alone = replace(ADVICE, tried=(eager,), choice=eager)
    assert advice_sentence(alone).startswith("eager: nothing else was measured; ")
    others_failed = replace(alone, tried=(FAILED, eager))
    assert advice_sentence(others_failed).startswith("eager: nothing else that was tried can be advised; ")
    jumps_alone = replace(alone, choice=replace(eager, is_unstable=True))
    assert advice_sentence(jumps_alone).startswith("best so far eager; unstable: it jumps between two values, ")
    nothing = replace(ADVICE, choice=None, tried=(FAILED,))
    assert advice_sentence(nothing).startswith("nothing that was tried can be advised; ")


def test_nothing_is_guaranteed_of_settings_that_jump_between_two_values():
    """Six of eight jobs of reduce-overhead take 10 ms, two 13 ms, and default takes 11.5 ms."""
    jumping = [10.0, 10.01, 13.0, 9.99, 10.0, 13.01, 10.02, 10.0]
    arms = [
        Arm("compile.mode=eager", 0, [20.0, 20.01]),
        Arm("compile.mode=default", 9, [11.5, 11.51, 11.49, 11.5, 11.51, 11.5], [11.5, 11.5]),
        Arm("compile.mode=reduce-overhead", 9, jumping[:6], jumping[6:]),
    ]
    race = Race(arms)
    jobs = {arm.name: [replace(JOB, overrides=[arm.name], figure=figure) for figure in arm.all_figures] for arm in arms}
    tried = tuple(tried_arms(race, jobs))
    advice = replace(ADVICE, tried=tried, choice=tried[1], most_gain=race.standing().most_gain, not_tried=())
    assert [arm.outcome for arm in tried] == ["slower", "chosen", "slower"]
    text = advice_sentence(advice)
    assert " % confidence nothing tried that is stable is better (unstable: reduce-overhead); " in text
    undecided = advice_sentence(replace(ADVICE, is_decided=False, most_gain=0.083))
    assert "; undecided: something tried that is stable may be up to 8.3 % better (unstable: default); " in undecided
    stays = replace(ADVICE, choice=EAGER, tried=(replace(EAGER, outcome="chosen"), JUMPS), most_gain=-0.1)
    assert " nothing tried that is stable is better (unstable: default); " in advice_sentence(stays)


GIB = 2**30
SMALL = replace(
    BEST,
    label="blocks",
    jobs=(replace(JOB, peak_bytes=GIB),),
    gain=Ratio(0.98, 0.98, 0.99, 0.002, True),
    is_leader=False,
)
LARGE = replace(EAGER, jobs=(replace(JOB, peak_bytes=4 * GIB),), outcome="equal")
MEMORY_ADVICE = replace(
    ADVICE, choice=SMALL, tried=(LARGE, SMALL), most_gain=0.023, tolerance=0.05, not_tried=(), minimizes_memory=True
)


def test_where_the_least_memory_is_the_goal_the_sentence_has_the_memory_and_what_is_known_of_less():
    text = advice_sentence(MEMORY_ADVICE)
    assert text.startswith(
        "blocks: 1.00 GiB in place of 4.00 GiB at 0.98x [0.98, 0.99] the speed of eager; with 95 % confidence nothing "
        "tried is more than 2.3 % faster, and nothing that could be advised takes less memory; "
    )
    smaller = replace(EAGER, label="checkpointed", jobs=(replace(JOB, peak_bytes=GIB // 2),), outcome="slower")
    text = advice_sentence(replace(MEMORY_ADVICE, tried=(LARGE, SMALL, smaller)))
    assert (
        " 2.3 % faster, and what could be advised with less memory is more than 5 % slower than the fastest; " in text
    )
    unknown = replace(smaller, may_be_equal=True)
    text = advice_sentence(replace(MEMORY_ADVICE, tried=(LARGE, SMALL, unknown)))
    assert (
        " 2.3 % faster; undecided whether checkpointed, with less memory, is more than 5 % slower than the fastest; "
    ) in text
    jumping = replace(smaller, is_unstable=True)
    text = advice_sentence(replace(MEMORY_ADVICE, tried=(LARGE, SMALL, jumping)))
    assert (
        " nothing tried that is stable is more than 2.3 % faster (unstable: checkpointed), and nothing that could be "
        "advised takes less memory; "
    ) in text


def test_where_the_least_memory_is_the_goal_the_first_settings_may_stay():
    eager = replace(LARGE, outcome="chosen")
    stays = replace(MEMORY_ADVICE, choice=eager, tried=(eager, STEADY), most_gain=-0.1)
    assert advice_sentence(stays).startswith(
        "stay with eager: 4.00 GiB; with 95 % confidence nothing tried is more than 0.0 % faster, and "
    )
    undecided = replace(MEMORY_ADVICE, is_decided=False)
    assert advice_sentence(undecided).startswith(
        "best so far blocks: 1.00 GiB in place of 4.00 GiB at 0.98x [0.98, 0.99] the speed of eager; undecided: "
        "something tried may be up to 2.3 % faster; "
    )
    assert "As good, and no cheaper in memory: eager." in printed(MEMORY_ADVICE)


def test_a_choice_that_changes_the_training_says_so_at_the_end():
    advice = replace(ADVICE, changes_training=("amp=bf16", "data.batch_size=512"))
    assert advice_sentence(advice).endswith("; changes the training: amp=bf16, data.batch_size=512")


def test_numbers_that_could_not_be_compared_are_said():
    unchecked = replace(BEST, jobs=(JOB, replace(JOB, unchecked="random numbers")))
    advice = replace(ADVICE, choice=unchecked, tried=(EAGER, unchecked))
    assert "; its numbers could not be compared with eager's: random numbers; 14 min of" in advice_sentence(advice)
    assert "chosen; numbers not compared with eager's" in outcomes_of(printed(advice))


def test_the_table_has_the_chosen_settings_first_and_says_why_others_are_out():
    lines = printed(ADVICE)
    assert lines[1].startswith("default, fused      1,000          1.42x         leads   0.00 s ")
    assert lines[1].endswith("chosen")
    outcomes = outcomes_of(lines)
    assert "as good or worse; unstable: judged by the slower of two values, and no winner" in outcomes
    assert "oom: no memory" in outcomes
    assert "as good or worse" in outcomes
    assert lines[-4].endswith("for all settings together: below 1 is worse, at most 2 % below is as good.")
    effect = lines.index("default over eager: 1.20x [1.10, 1.30].")
    assert lines[effect - 1] == "One value at a time, each with a 95 % interval for that comparison alone:"
    assert not any(line.startswith("The largest batch") for line in lines)
    sized = replace(ADVICE, largest_batch=448, batch_mode="reduce-overhead")
    assert "The largest batch size that was tried and fits, in mode reduce-overhead: 448." in printed(sized)
    assert lines[-1] == advice_sentence(ADVICE)


def test_settings_that_are_worse_by_themselves_and_not_by_the_race_are_no_contradiction():
    """The figures of a race on a CPU whose outcome was "undecided" beside 0.89x [0.84, 0.93]."""
    eager = [
        0.3178, 0.3602, 0.2974, 0.2935, 0.2800, 0.2838, 0.2973, 0.2849, 0.3071, 0.3164, 0.2788, 0.2837, 0.2780, 0.2811,
        0.3689, 0.3835,
    ]  # fmt: skip
    default = [
        0.3209, 0.3255, 0.3126, 0.3173, 0.3021, 0.2959, 0.2976, 0.3187, 0.3288, 0.3202, 0.3233, 0.3214, 0.3352, 0.3778,
        0.3364, 0.3674,
    ]  # fmt: skip
    arms = [
        Arm("compile.mode=eager", 0, eager, [0.2964, 0.2906, 0.2970, 0.3329]),
        Arm("compile.mode=default", 9, default, [0.3441, 0.3388, 0.3405, 0.3554]),
        Arm("compile.dynamic=false", excluded="nothing was compiled"),
    ]
    race = Race(arms)
    jobs = {arm.name: [replace(JOB, overrides=[arm.name], figure=figure) for figure in arm.all_figures] for arm in arms}
    tried = tried_arms(race, jobs)
    alone = race.gain(arms[1], arms[0])
    assert alone.high < 1
    assert [(arm.label, arm.outcome) for arm in tried] == [("eager", "chosen"), ("default", "no_better")]
    advice = replace(ADVICE, tried=tuple(tried), choice=tried[0], most_gain=race.standing().most_gain, not_tried=())
    line = printed(advice)[2].split("  ")
    assert [cell.strip() for cell in line if cell][2:4] == ["0.89x", "0.85 to 1.02"]
    assert line[-1].strip() == "as good or worse"
    assert advice_sentence(advice).startswith(
        "no measurable gain: stay with eager; with 95 % confidence nothing tried is more than 1.8 % better; "
    )


def test_an_interval_shows_on_which_side_of_1_it_lies():
    assert bounds_text((0.95, 0.9972)) == "0.95 to 0.997"
    assert bounds_text((0.95, 1.004)) == "0.95 to 1.00"
    assert bounds_text((1.003, 1.2)) == "1.003 to 1.20"


def test_the_page_has_the_rounds_and_their_reasons(tmp_path: Path):
    page = write_advice(tmp_path, ADVICE, "resnet18 on digits: a race").read_text()
    assert "<td>0.50 to 2.00</td><td>out: 0.68 to 0.72</td>" in page
    assert "<td>leads</td><td>leads</td>" in page
    assert "<td>blocks</td><td></td><td>excluded</td>" in page
    unknown = Round("round 1", "default, fused", {"eager": (0.0, float("inf")), "default, fused": (1.0, 1.0)}, ())
    page = write_advice(tmp_path, replace(ADVICE, rounds=(unknown,)), "a race").read_text()
    assert "<td>eager</td><td>-</td>" in page
    assert "<tr><td>max-autotune</td><td>needs about 9.0 min</td></tr>" in page
    assert "<tr><td>amp</td><td>changes the training</td></tr>" in page


def test_the_plot_has_each_interval_up_to_the_one_that_puts_the_arm_out():
    after = Round("final", "default, fused", {"eager": (0.62, 0.67), "default, fused": (1.0, 1.0)}, ("eager",))
    plot = plot_race((*ADVICE.rounds, after), ADVICE.tried, "race")
    assert "Intervals round by round: eager 0.68 to 0.72; default, fused leads" in plot.svg
    unknown = Round("round 1", "", {"eager": (0.0, float("inf"))}, ())
    assert plot_race((unknown,), ADVICE.tried, "race") is None


def test_no_label_and_no_reason_becomes_markup(tmp_path: Path):
    tried = tuple(replace(FAILED, label=text, reason=text) for text in HOSTILE)
    page = write_advice(tmp_path, replace(ADVICE, tried=(*tried, BEST)), "<script>").read_text()
    assert "<script" not in page
    assert "\x1b" not in page
