"""A study: one question, the sweep that answers it, and the comparisons that its rows are made into."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from trainkit.analysis.claims import Claim, read_claim
from trainkit.analysis.comparison import Comparison, compare
from trainkit.analysis.pairs import PairwiseComparison, compare_pairs
from trainkit.results.row import Row


@dataclass(frozen=True)
class PlannedComparison:
    """One choice of settings against another, by a column of a row (None: by speed), and the claim about it, if any."""

    column: str | None
    choice: str
    baseline: str
    claim: Claim | None = None


@dataclass(frozen=True)
class Study:
    """A question, the answer that was claimed elsewhere, and the comparisons that check it.

    In an index the first comparison with rows answers the question.
    """

    name: str
    question: str
    claimed: str
    comparisons: tuple[PlannedComparison, ...]


@dataclass(frozen=True)
class StudyResult:
    """A study and its rows: all of them compared, and the pairs of each planned comparison."""

    study: Study
    rows: list[Row]
    comparison: Comparison
    pairs: list[list[PairwiseComparison]]


def evaluate_study(study: Study, rows: Sequence[Row]) -> StudyResult:
    """Compare the rows of a study. Raises ValueError if a planned comparison fits several candidates."""
    return StudyResult(study, list(rows), compare(rows), planned_pairs(study, rows))


def planned_pairs(study: Study, rows: Sequence[Row]) -> list[list[PairwiseComparison]]:
    """The pairs of each planned comparison, in the order of the study."""
    pairs = []
    for planned in study.comparisons:
        pairs.append(compare_pairs(rows, planned.choice, planned.baseline, planned.column))
    return pairs


def read_study(path: Path) -> Study:
    """The study of an experiment. ValueError, naming the file, where its head has not all of it."""
    head = re.match(r"(#.*\n)*", path.read_text(encoding="utf-8"))
    assert head is not None  # it matches nothing at all too
    lines = re.sub(r"\n#   +", " ", head[0]).splitlines()
    said = [(found[1], found[2]) for line in lines if (found := re.fullmatch(r"# (\w+): (.+)", line))]
    first = dict(reversed(said))
    form = r"(?:(\w+) of )?([^;]+) over ([^;]+?)\s*(?:;\s*claimed (.+))?"
    asked = [re.fullmatch(form, words) for name, words in said if name == "Measured"]
    if not asked or None in asked or not {"Question", "Claimed"} <= first.keys():
        raise ValueError(
            f"{path}: expected # Question: ..., # Claimed: ... and # Measured: ... over ...[; claimed ...] in its head"
        )
    try:
        measured = [
            PlannedComparison(one[1], one[2], one[3], read_claim(one[4], one[1]) if one[4] else None)
            for one in asked
            if one
        ]
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
    return Study(path.stem, first["Question"], first["Claimed"], tuple(measured))
