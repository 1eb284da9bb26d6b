"""A study: one question, the sweep that answers it, and the comparisons that its rows are made into."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from trainkit.analysis.claims import Claim, read_claim
from trainkit.analysis.comparison import Comparison, compare
from trainkit.analysis.pairs import PairwiseComparison, compare_pairs
from trainkit.config.schema import ComparisonConfig, StudyConfig
from trainkit.results.row import Row

EXPECTED = "expected question, claimed and measured: [{choice: SETTINGS, baseline: SETTINGS[, column, claimed]}, ...]"


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
    """Read the node `study` of an experiment. Raises ValueError, naming the file, if it is incomplete."""
    try:
        node = OmegaConf.select(OmegaConf.load(path), "study", default={})
        config = OmegaConf.to_object(OmegaConf.merge(StudyConfig, node))
    except (OmegaConfBaseException, YAMLError, ValueError) as error:
        problem = str(error).partition("\n")[0]
        raise ValueError(f"{path}: study: {problem}; {EXPECTED}") from None
    assert isinstance(config, StudyConfig)
    if not config.measured:
        raise ValueError(f"{path}: study: measured is empty; {EXPECTED}")
    try:
        comparisons = tuple(_planned(comparison) for comparison in config.measured)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
    return Study(path.stem, config.question, config.claimed, comparisons)


def _planned(comparison: ComparisonConfig) -> PlannedComparison:
    claim = None
    if comparison.claimed is not None:
        claim = read_claim(comparison.claimed, comparison.column)
    return PlannedComparison(comparison.column, comparison.choice, comparison.baseline, claim)
