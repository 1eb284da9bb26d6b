"""Sentences about pairwise comparisons and about claims."""

from dataclasses import replace

import pytest

from tests.sweeps import crossing, ops_row
from trainkit.analysis.claims import Outcome, judge_claim, read_claimed
from trainkit.analysis.comparison import compare
from trainkit.analysis.pairs import PairwiseComparison, compare_pairs
from trainkit.report.pairwise import claimed_text, found_sentence, outcomes_text, pairwise_sentences
from trainkit.report.plots.palette import HUES
from trainkit.report.plots.ratios import plot_pairs
from trainkit.stats import Ratio


def test_shares_stand_beside_each_other_with_and_without():
    rows = [
        ops_row(
            1, 2.0, n, compile_mode="eager", kind="forward", fallback=fallback, deadline_miss_frac=frac * (1 + n / 50)
        )
        for fallback, frac in ((None, 0.5), (["model=simple_net"], 0.0))
        for n in range(2)
    ]
    found = compare_pairs(rows, "forward.fallback!=null", "forward.fallback=null", "deadline_miss_frac")
    assert pairwise_sentences(found) == [
        "Missed deadlines with fallback!=null and with fallback=null: 0.0 % and 50.5 % (50.0 % to 51.0 %) (2 runs)."
    ]
    plot = plot_pairs(found, "shares", HUES[2])
    assert plot is not None
    assert plot.title == "Missed deadlines with fallback!=null and with fallback=null"
    assert "0.0 % and 50.5 %" in plot.svg
    assert "var(--s2)" in plot.svg
    assert "var(--s0)" not in plot.svg
    assert plot_pairs([], "none", HUES[0]) is None


@pytest.mark.parametrize(
    ("num_runs", "said"),
    [
        (3, "0.422 s (0.392 s to 0.551 s) against 0 s."),
        (2, "0.487 s (0.422 s to 0.551 s) against 0 s (2 runs)."),
        (1, "0.551 s against 0 s (1 run)."),
    ],
)
def test_a_figure_that_is_0_on_one_side_has_no_ratio_but_a_range(num_runs, said):
    rows = []
    for n, recompile_s in enumerate([0.551, 0.422, 0.392][:num_runs]):
        rows.append(ops_row(1, 2.0, n, compile_mode="default", compile_dynamic=False, compile_recompile_s=recompile_s))
        rows.append(ops_row(1, 2.0, n, compile_mode="default", compile_dynamic=True, compile_recompile_s=0.0))
    pairs = compare_pairs(rows, "compile.dynamic=false", "compile.dynamic=true", "compile_recompile_s")
    assert pairwise_sentences(pairs) == [f"Time of recompiles of dynamic=false over dynamic=true: {said}"]
    assert plot_pairs(pairs, "zero", HUES[0]) is None


def test_a_ratio_of_single_runs_says_so():
    rows = [ops_row(1, ms, 0, compile_mode=mode) for ms, mode in ((3.0, "eager"), (2.0, "default"))]
    assert pairwise_sentences(compare_pairs(rows, "compile.mode=default", "compile.mode=eager")) == [
        "Speed of default over eager: 1.50x (1 run)."
    ]


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ((0.80, 0.81), "R2Score of default over eager: 1.32x [1.15, 1.51], better."),
        (
            (-0.80, -0.81),
            "R2Score of default over eager: -0.805 (-0.810 to -0.800) against 0.610 (0.600 to 0.620), worse.",
        ),
        ((0.60, 0.63), "R2Score of default over eager: 1.01x [0.87, 1.17], no measurable difference."),
    ],
)
def test_a_metric_is_named_and_has_a_direction(values, said):
    rows = []
    for mode, values_of_mode in (("default", values), ("eager", (0.60, 0.62))):
        for n, value in enumerate(values_of_mode):
            metric = {"metric_name": "R2Score", "metric_higher_is_better": True, "val_metric": value}
            rows.append(ops_row(1, 2.0, n, compile_mode=mode, **metric))
    pairs = compare_pairs(rows, "compile.mode=default", "compile.mode=eager", "val_metric")
    assert pairwise_sentences(pairs) == [said]
    plot = plot_pairs(pairs, "metric", HUES[0])
    assert plot is None if "against" in said else "higher is better" in plot.svg


@pytest.mark.parametrize(
    ("eager_ms", "column", "said"),
    [
        ([3.0], None, "default is faster than eager."),
        ([3.0, 4.0], None, "default is faster than eager in all."),
        ([1.0, 1.0, 3.0, 2.0], None, "default is slower than eager in 2 of 4, faster in 1, undecided in 1."),
        ([2.0, 2.0], None, "No difference between default and eager is measurable."),
        ([3.0, 2.0], "step_time_ms_p50", "default has lower median time than eager in 1 of 2, undecided in 1."),
    ],
)
def test_a_sentence_says_what_was_found_without_figures(eager_ms, column, said):
    rows = []
    for num_ops, ms in enumerate(eager_ms, start=1):
        for n in range(3):
            rows.append(ops_row(num_ops, ms + n / 1e3, n, compile_mode="eager"))
            rows.append(ops_row(num_ops, 2.0 + n / 1e3, n, compile_mode="default"))
    pairs = compare_pairs(rows, "compile.mode=default", "compile.mode=eager", column)
    assert found_sentence(pairs) == said


def test_a_choice_is_compared_where_all_else_is_equal():
    found = compare_pairs(crossing(), "compile.mode=default compile.dynamic=false", "compile.mode=eager")
    assert {pair.conditions["model.num_ops"]: pytest.approx(pair.ratio.value) for pair in found} == {
        "1": 0.6,
        "10": 1.5,
        "30": 3.5,
    }
    assert pairwise_sentences(found) == [
        "Speed of default, dynamic=false over eager: 0.60x [0.60, 0.60] at model.num_ops=1; 1.50x [1.50, 1.50] at 10; "
        "3.50x [3.49, 3.51] at 30; measurably faster from 10 on."
    ]
    unsure = replace(found[1], ratio=replace(found[1].ratio, measurable=False))
    (gap,) = pairwise_sentences([replace(found[0], ratio=found[2].ratio), unsure, found[2]])
    assert gap.endswith("3.50x [3.49, 3.51] at 30; no measurable difference at 10.")
    other = [replace(one, model="other", run_id=f"other-{one.run_id}") for one in crossing()]
    begin, *lines = pairwise_sentences(compare_pairs([*crossing(), *other], found[0].choice, found[0].baseline))
    assert begin == "Speed of default, dynamic=false over eager:"
    assert [line[: line.index("0x")] for line in lines] == ["op_chain: 0.6", "other: 0.6"]


@pytest.mark.parametrize(
    ("besides", "said"),
    [
        ([{"model": "a", "data.batch_size": "32"}, {"model": "b", "data.batch_size": "32"}],
         " (data.batch_size=32): 2.00x at a; 2.00x at b"),
        ([{"cuda_version": "12.10"}, {"cuda_version": "13.0"}], ": 2.00x at cuda_version=12.10; 2.00x at 13.0"),
        ([{"data.num_samples": "1281167"}, {"data.num_samples": "1281168"}],
         ": 2.00x at data.num_samples=1281167; 2.00x at 1281168; measurably faster from 1281167 on"),
        ([{"model.depth": "unset"}, {"model.depth": "2"}], ": 2.00x at model.depth=unset; 2.00x at 2"),
    ],
)  # fmt: skip
def test_a_line_goes_through_what_tells_the_works_apart(besides, said):
    two = Ratio(2.0, 1.9, 2.1, 0.01, True)
    pairs = [PairwiseComparison(None, "compile.mode=default", "compile.mode=eager", beside, two) for beside in besides]
    assert pairwise_sentences(pairs) == [f"Speed of default over eager{said.replace('2.00x', '2.00x [1.90, 2.10]')}."]


def test_a_setting_that_eager_rows_lack_is_no_place():
    besides = (
        {"compile.mode": "eager"},
        *({"compile.mode": "default", "compile.dynamic": of} for of in ("false", "true")),
    )
    two = Ratio(2.0, 1.9, 2.1, 0.01, True)
    pairs = [PairwiseComparison(None, "amp.precision=bf16-mixed", "amp.precision=32-true", of, two) for of in besides]
    assert pairwise_sentences(pairs) == [
        "Speed of bf16-mixed over 32-true:",
        "2.00x [1.90, 2.10] at eager.",
        "dynamic=false: 2.00x [1.90, 2.10] at default.",
        "dynamic=true: 2.00x [1.90, 2.10] at default.",
    ]


def test_a_choice_that_ran_compiled_in_part_is_compared_and_remarked():
    mixed = {"effective_mode": "mixed", "effective_mode_reason": "recompile limit (8) reached", "num_eager_steps": 52}
    rows = [ops_row(1, 1.2, n, compile_mode="eager", effective_mode="eager") for n in range(2)]
    rows += [ops_row(1, 1.2, n, compile_mode="default", num_steps=60, **mixed) for n in range(2)]
    assert pairwise_sentences(compare_pairs(rows, "compile.mode=default", "compile.mode=eager")) == [
        "Speed of default over eager: 1.00x [1.00, 1.00], no measurable difference, 52 of 60 steps uncompiled "
        "(recompile limit (8) reached)."
    ]
    (dropped,) = compare(rows).dropped
    assert dropped.reason.startswith("requested default, effective mixed")


@pytest.mark.parametrize(
    ("words", "steps_ms", "said"),
    [
        ("below 1", [(1, 2.0), (10, 2.0), (30, 2.0)], "below 1x: held in 1 of 3, did not hold in 2"),
        ("above 1", [(10, 2.0), (30, 2.0)], "above 1x: held in all"),
        ("above 1", [(1, 1.2)], "above 1x: undecided"),
        ("about 3.3", [(30, 2.0)], "about 3.30x: held"),
        ("about 5.32", [(30, 2.0)], "about 5.32x: held in direction only"),
        ("about 0.5", [(30, 2.0)], "about 0.50x: did not hold"),
        ("below 1", [(10, 2.0), (30, 2.0)], "below 1x: did not hold in all"),
        ("about 1", [(1, 1.2), (30, 2.0)], "about 1.00x: held in 1 of 2, did not hold in 1"),
    ],
)
def test_a_claim_held_or_did_not_where_the_interval_decides_it(words, steps_ms, said):
    rows = [
        ops_row(num_ops, ms, repeat, compile_mode=mode)
        for num_ops, compiled in steps_ms
        for mode, ms in (("eager", 1 + 0.2 * num_ops), ("default", compiled))
        for repeat in range(3)
    ]
    claim = read_claimed(words, None, None)
    pairs = compare_pairs(rows, "compile.mode=default", "compile.mode=eager")
    outcomes = outcomes_text([judge_claim(claim, pair) for pair in pairs])
    assert f"{claimed_text(claim, None)}: {outcomes}" == said
    alone = compare_pairs([one for one in rows if one.repeat == 0], "compile.mode=default", "compile.mode=eager")
    assert {judge_claim(claim, pair) for pair in alone} == {Outcome.OPEN}
