"""Claims are judged by pairwise comparisons."""

import pytest

from tests.sweeps import ops_row
from trainkit.analysis.claims import Outcome, judge_claim, read_claimed, read_published
from trainkit.analysis.pairs import PairwiseComparison, compare_pairs
from trainkit.report.pairwise import claimed_text
from trainkit.stats import Ratio


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (Ratio(0.56, 0.35, 0.89, 1.0, False), Outcome.OPEN),  # beyond the interval, but within the noise
        (Ratio(0.56, 0.35, 0.89, 0.2, True), Outcome.NOT),
        (Ratio(0.97, 0.85, 1.09, 0.2, False), Outcome.OPEN),
        (Ratio(0.97, 0.92, 1.02, 0.2, False), Outcome.HELD),
    ],
)
def test_a_number_is_missed_by_more_than_the_noise(found, said):
    assert judge_claim(read_claimed("about 1", None, None), PairwiseComparison(None, "a=1", "a=2", {}, found)) is said


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (Ratio(1.7, 1.6, 1.8, 0.05, True), Outcome.HELD),
        (Ratio(1.4, 1.3, 1.6, 0.05, True), Outcome.DIRECTION),
        (Ratio(1.4, 0.9, 1.8, 0.3, False), Outcome.OPEN),
        (Ratio(1.04, 1.03, 1.05, 0.01, True), Outcome.NOT),  # on the claimed side of 1, but outside
        (Ratio(18.1, 10.9, 30.2, 0.67, True), Outcome.NOT),
        (Ratio(1.3, 1.2, 1.4, 0.1, True), Outcome.NOT),
        (Ratio(1.3, 1.2, 1.4, 0.2, True), Outcome.DIRECTION),  # outside by less than the noise
        (Ratio(1.3, 0.95, 1.45, 0.2, False), Outcome.OPEN),
        (Ratio(0.9, 0.8, 0.95, 0.05, True), Outcome.NOT),
    ],
)
def test_a_range_is_claimed_from_its_lowest_to_its_highest_ratio(found, said):
    claim = read_claimed("1.5 to 2", None, None)
    assert judge_claim(claim, PairwiseComparison(None, "a=1", "a=2", {}, found)) is said
    assert claimed_text(claim, None) == "1.50x to 2.00x"


@pytest.mark.parametrize("text", ["2 to 1.5", "about 0", "0 to 1", "1.5 - 2"])
def test_what_is_no_claim_is_refused(text):
    with pytest.raises(ValueError, match="expected below 1, above 1, better, worse, about NUMBER or NUMBER to NUMBER"):
        read_claimed(text, None, None)


@pytest.mark.parametrize(
    ("these", "those", "said"),
    [
        ([0.1, 0.2, 0.1], [0.3, 0.4, 0.3], Outcome.HELD),
        ([0.3, 0.4, 0.3], [0.1, 0.2, 0.1], Outcome.NOT),
        ([0.1, 0.3, 0.1], [0.2, 0.4, 0.2], Outcome.OPEN),
        ([0.1, 0.2], [0.3, 0.4], Outcome.OPEN),  # so few runs stand apart by chance
        ([0.0, 0.0, 0.0], [0.0, 0.0, 0.0], Outcome.NONE),
    ],
)
def test_a_claim_of_shares_is_decided_where_no_run_of_one_side_is_among_the_other(these, those, said):
    pair = PairwiseComparison("deadline_miss_frac", "a=1", "a=2", {}, None, these, those)
    claim = read_claimed("below 1", pair.column, None)
    assert judge_claim(claim, pair) is said
    assert claimed_text(claim, pair.column) == "fewer"


@pytest.mark.parametrize(
    ("choice_values", "baseline_values", "outcome"),
    [
        ([0.42, 0.39, 0.55], [0.0, 0.0, 0.0], Outcome.HELD),
        ([0.0, 0.0, 0.0], [0.42, 0.39, 0.55], Outcome.NOT),
        ([0.0, 0.0, 0.0], [0.0, 0.0, 0.0], Outcome.NONE),
        ([0.42, 0.0, 0.55], [0.0, 0.0, 0.0], Outcome.OPEN),
        ([0.42, 0.0, 0.55], [0.1, 0.0, 0.1], Outcome.OPEN),  # no ratio, and no side that is 0 in all runs
        ([0.42, 0.39], [0.0, 0.0], Outcome.OPEN),
    ],
)
def test_a_claim_is_decided_where_one_side_is_0_in_all_runs(choice_values, baseline_values, outcome):
    pair = PairwiseComparison("compile_recompile_s", "a=1", "a=2", {}, None, choice_values, baseline_values)
    assert judge_claim(read_claimed("above 1", pair.column, None), pair) is outcome
    assert judge_claim(read_claimed("about 2", pair.column, None), pair) is Outcome.OPEN


@pytest.mark.parametrize(
    ("these", "those", "higher_is_better", "said"),
    [
        ([0.80, 0.81], [0.60, 0.62], True, Outcome.HELD),
        ([0.80, 0.81], [0.60, 0.62], False, Outcome.NOT),
        ([-0.80, -0.81], [-0.60, -0.62], False, Outcome.HELD),  # has no ratio
        ([0.80, 0.81], [0.60, 0.62], None, Outcome.OPEN),
        ([0.60, 0.64], [0.60, 0.62], True, Outcome.OPEN),
        ([0.80], [0.60], True, Outcome.OPEN),
        ([0.60, 0.60], [0.60, 0.60], True, Outcome.NONE),
    ],
)
def test_which_metric_is_better_follows_from_its_direction(these, those, higher_is_better, said):
    rows = []
    for mode, values in (("default", these), ("eager", those)):
        metric = {"metric_name": "R2Score", "metric_higher_is_better": higher_is_better}
        rows += [ops_row(1, 2.0, n, compile_mode=mode, val_metric=value, **metric) for n, value in enumerate(values)]
    (pair,) = compare_pairs(rows, "compile.mode=default", "compile.mode=eager", "val_metric")
    better, worse = (read_claimed(text, "val_metric", None) for text in ("better", "worse"))
    assert judge_claim(better, pair) is said
    opposite = {Outcome.HELD: Outcome.NOT, Outcome.NOT: Outcome.HELD}
    assert judge_claim(worse, pair) is opposite.get(said, said)
    assert claimed_text(better, pair.column) == "better"


@pytest.mark.parametrize(
    ("column", "value", "said"),
    [(None, 1.5, Outcome.HELD), ("compile_time_s", 1.5, Outcome.NOT), ("samples_per_s", 1.5, Outcome.HELD)],
)
def test_better_is_faster_and_less_of_what_costs(column, value, said):
    pair = PairwiseComparison(column, "a=1", "a=2", {}, Ratio(value, 1.4, 1.6, 0.01, True))
    assert judge_claim(read_claimed("better", column, None), pair) is said


@pytest.mark.parametrize(
    ("choice", "baseline", "column", "ratio"),
    [
        ("47.04 ms", "75.58 ms", None, 75.58 / 47.04),  # how many times as fast
        ("157.4 s", "133.6 s", "compile_time_s", 157.4 / 133.6),
        ("1,522.7 ms", "1.5 ms", "step_time_ms_p50", 1522.7 / 1.5),
        ("12.3 s", "0 s", "compile_time_s", None),
    ],
)
def test_the_published_ratio_follows_from_the_published_figures(choice, baseline, column, ratio):
    published = read_published(choice, baseline, column)
    assert (published.choice, published.baseline) == (choice, baseline)
    assert published.ratio == (pytest.approx(ratio) if ratio else None)
    if ratio:
        assert read_claimed(None, column, published).number == pytest.approx(ratio)
    else:
        with pytest.raises(ValueError, match="claimed is left out: expected below 1, above 1, better, worse, about "):
            read_claimed(None, column, published)


def test_nothing_is_claimed_to_be_about_0():
    with pytest.raises(ValueError, match=r"claimed about 0\.0: expected below 1, above 1"):
        read_claimed("about 0.0", "step_time_ms", None)


@pytest.mark.parametrize(
    ("choice", "baseline", "complaint"),
    [
        ("12.3890", "8.4707 ms", "published 12.3890: expected a number and its unit, as in 8.4707 ms"),
        ("about 3 ms", "8.4707 ms", "published about 3 ms: expected a number and its unit"),
        ("1.5 s", "3 ms", "published 1.5 s, 3 ms: expected the same unit"),
    ],
)
def test_published_figures_are_two_numbers_of_one_unit(choice, baseline, complaint):
    with pytest.raises(ValueError, match=complaint):
        read_published(choice, baseline, None)
