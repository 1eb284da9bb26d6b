"""Claims are judged by pairwise comparisons."""

import pytest

from trainkit.analysis.claims import Outcome, judge_claim, read_claim
from trainkit.analysis.pairs import PairwiseComparison
from trainkit.report.pairwise import claim_sentence
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
    assert judge_claim(read_claim("about 1", None), PairwiseComparison(None, "a=1", "a=2", {}, found)) is said


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
    claim = read_claim("below 1", pair.column)
    assert judge_claim(claim, pair) is said
    assert claim_sentence(claim, [pair]) == f"Claimed to be fewer: {said.value}."
