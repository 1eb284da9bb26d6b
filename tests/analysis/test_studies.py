"""A study is read from its node, and its claims are tested by rows."""

from dataclasses import replace

import pytest

from tests.sweeps import crossing
from trainkit.analysis.studies import PlannedComparison, evaluate_study, read_study

STUDY = """
study:
  question: How
    long?
  claims:
    - source: T3
      claim: Compiled is slower at n = 1.
      work: data.batch_size=8
      comparisons:
        - choice: compile.dynamic=false model.num_ops=1
          baseline: compile.mode=eager model.num_ops=1
          published: {choice: 37.67 us, baseline: 13.32 us}
    - {source: T2, claim: Python 3.14 is faster., published: 68 -> 65 ms (-4.4 %), not_measured: it is not here}
  comparisons: [{choice: a=1, baseline: b=2}]
  why: Launches take longest.
  not_measured: {forward only: no time}
"""
COMPARED = "question: How, comparisons: [{choice: a=1, baseline: a=2"
CLAIMED = "question: How, claims: [{source: T0, claim: Much., "


def test_a_study_is_read_from_its_node(tmp_path):
    path = tmp_path / "long.yaml"
    path.write_text(STUDY)
    study = read_study(path)
    assert (study.name, study.question, study.why) == ("long", "How long?", "Launches take longest.")
    assert study.not_measured == {"forward only": "no time"}
    assert study.comparisons == (PlannedComparison(None, "a=1", "b=2"),)
    tested, untested = study.claims
    (planned,) = tested.comparisons
    assert (tested.source, tested.text, planned.published.choice) == ("T3", "Compiled is slower at n = 1.", "37.67 us")
    assert planned.claimed.number == pytest.approx(13.32 / 37.67)
    assert (untested.published, untested.not_measured) == ("68 -> 65 ms (-4.4 %)", "it is not here")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("model: {depth: 1}", "study: .*missing mandatory value: question"),
        ("study: {claims: []}", "study: .*missing mandatory value: question"),
        ("study: {question: How}", "study: compares nothing; expected question, and claims: "),
        ("study: {question: How, asked: 1}", "study: Key 'asked' not in 'StudyConfig'.*; expected question, and"),
        (
            "study: {question: How, comparisons: [{choice: a}]}",
            "study: .*missing mandatory value: baseline.*; expected",
        ),
        ("study: 3", "study: Invalid input.*; expected question, and claims: "),
        ("study: {", "study: while parsing"),
        (
            f"study: {{{COMPARED}, claimed: below 1}}]}}",
            "study: a=1: claimed and published belong to a comparison of a ",
        ),
        (f"study: {{{CLAIMED} published: 3 ms}}]}}", r"study: Much. \(T0\): no comparison tests it; add one, or not_"),
        (
            f"study: {{{CLAIMED} comparisons: [{{choice: a=1, baseline: a=2}}]}}]}}",
            r"study: Much. \(T0\): claimed is left out: expected below 1, above 1, better, worse, about NUMBER",
        ),
        (
            f"study: {{{CLAIMED} comparisons: [{{choice: a=1, baseline: a=2, claimed: faster}}]}}]}}",
            r"study: Much. \(T0\): claimed faster: expected below 1, above 1, better, worse, about NUMBER",
        ),
        (
            f"study: {{{CLAIMED} comparisons: [{{choice: a=1, baseline: a=2, column: deadline_miss_frac, "
            "claimed: about 0.5}]}]}",
            r"study: Much. \(T0\): claimed about 0.5: expected below 1, above 1, better or worse$",
        ),
    ],
)
def test_an_incomplete_study_names_the_file(text, problem, tmp_path):
    path = tmp_path / "what.yaml"
    path.write_text(text)
    with pytest.raises(ValueError, match=rf"what\.yaml: {problem}") as raised:
        read_study(path)
    assert "\n" not in str(raised.value)


def test_a_claim_is_tested_by_rows_of_its_work_or_else_by_all(tmp_path):
    path = tmp_path / "long.yaml"
    path.write_text(STUDY.replace("comparisons: [{choice: a=1, baseline: b=2}]", "comparisons: []"))
    study = read_study(path)
    other_rows = crossing()
    (other,) = evaluate_study(study, other_rows).all_comparisons
    assert (len(other.pairs), other.other_work) == (1, True)
    same_rows = [replace(row, batch_size=8) for row in other_rows]
    (same,) = evaluate_study(study, [*other_rows, *same_rows]).all_comparisons
    assert (len(same.pairs), same.other_work) == (1, False)
    (unmeasured,) = evaluate_study(study, []).all_comparisons
    assert (unmeasured.pairs, unmeasured.other_work) == ([], False)
