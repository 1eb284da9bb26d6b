"""A study: one question, the sweep that answers it, the claims that its rows test, and its own comparisons."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from trainkit.analysis.choices import rows_with
from trainkit.analysis.claims import ClaimedRatio, Outcome, Published, read_claimed, read_published
from trainkit.analysis.comparison import Comparison, compare
from trainkit.analysis.pairs import PairwiseComparison, compare_pairs
from trainkit.config.schema import ClaimConfig, ComparisonConfig, StudyConfig
from trainkit.results.row import Row

Entry = TypeVar("Entry")
EXPECTED = (
    "expected question, and claims: [{source, claim, comparisons: [{choice, baseline, column, published, claimed}, "
    "...]}, ...] or comparisons: [{choice, baseline, column}, ...]"
)


@dataclass(frozen=True)
class PlannedComparison:
    """One choice of settings against another, by a column of a row (None: by speed). Of a claim, the ratio that it
    claims, and the figures that its source published, if any."""

    column: str | None
    choice: str
    baseline: str
    claimed: ClaimedRatio | None = None
    published: Published | None = None


@dataclass(frozen=True)
class Claim:
    """The words of a source, and the comparisons that test them; see ClaimConfig."""

    source: str
    text: str
    work: str
    comparisons: tuple[PlannedComparison, ...]
    published: str | None = None
    not_measured: str | None = None


@dataclass
class OtherClaim:
    """A claim that no study tests: its verdict, `measured` for the evidence or the reason why there is none, and the
    command, the page and the plot that show it, seen from the folder of the pages."""

    source: str = "???"
    claim: str = "???"
    verdict: str = "???"
    measured: str = "???"
    published: str = ""
    command: str = ""
    page: str = ""
    plot: str = ""


@dataclass
class Answer:
    """The answer to a study's question, in a sentence or two: it holds for the rows that it stands beside."""

    study: str = "???"
    answer: str = "???"


@dataclass(frozen=True)
class Study:
    """A question, the claims about it, and comparisons that no source made; see StudyConfig."""

    name: str
    question: str
    claims: tuple[Claim, ...]
    comparisons: tuple[PlannedComparison, ...]
    why: str | None
    not_measured: Mapping[str, str]
    also: str | None


@dataclass(frozen=True)
class MeasuredComparison:
    """A planned comparison and its pairs, none if it was not measured. `other_work`: no row is of the source's work, so
    they are of other work."""

    planned: PlannedComparison
    pairs: list[PairwiseComparison]
    other_work: bool = False


@dataclass(frozen=True)
class MeasuredClaim:
    claim: Claim
    comparisons: list[MeasuredComparison]


@dataclass(frozen=True)
class StudyResult:
    """A study and its rows: all of them compared, its claims and its own comparisons with the pairs of each, and the
    answer to its question that stands beside these rows, if any."""

    study: Study
    rows: list[Row]
    comparison: Comparison
    claims: list[MeasuredClaim]
    comparisons: list[MeasuredComparison]
    answer: str | None = None

    @property
    def all_comparisons(self) -> list[MeasuredComparison]:
        """The comparisons of the claims, in their order, then the study's own."""
        comparisons: list[MeasuredComparison] = []
        for claim in self.claims:
            comparisons += claim.comparisons
        return comparisons + self.comparisons


def evaluate_study(study: Study, rows: Sequence[Row], answer: str | None = None) -> StudyResult:
    """Compare the rows of a study. Raises ValueError if a planned comparison fits several candidates."""
    claims = []
    for claim in study.claims:
        tested = [_measure(planned, rows, claim.work) for planned in claim.comparisons]
        claims.append(MeasuredClaim(claim, tested))
    own = [_measure(planned, rows) for planned in study.comparisons]
    return StudyResult(study, list(rows), compare(rows), claims, own, answer)


def _measure(planned: PlannedComparison, rows: Sequence[Row], work: str = "") -> MeasuredComparison:
    """The pairs among the rows of this work, or else among all rows."""
    pairs = compare_pairs(rows_with(work, rows), planned.choice, planned.baseline, planned.column)
    if pairs or not work:
        return MeasuredComparison(planned, pairs)
    pairs = compare_pairs(rows, planned.choice, planned.baseline, planned.column)
    return MeasuredComparison(planned, pairs, other_work=bool(pairs))


def read_study(path: Path) -> Study:
    """Read the node `study` of an experiment. Raises ValueError, naming the file, if it is incomplete."""
    try:
        node = OmegaConf.select(OmegaConf.load(path), "study", default={})
        config = OmegaConf.to_object(OmegaConf.merge(StudyConfig, node))
    except (OmegaConfBaseException, YAMLError, ValueError) as error:
        problem = str(error).partition("\n")[0]
        raise ValueError(f"{path}: study: {problem}; {EXPECTED}") from None
    assert isinstance(config, StudyConfig)
    if not config.claims and not config.comparisons:
        raise ValueError(f"{path}: study: compares nothing; {EXPECTED}")
    try:
        claims = tuple(map(read_claim, config.claims))
        comparisons = tuple(map(_own_comparison, config.comparisons))
    except ValueError as error:
        raise ValueError(f"{path}: study: {error}") from None
    return Study(path.stem, config.question, claims, comparisons, config.why, config.not_measured, config.also)


def read_other_claims(path: Path) -> list[OtherClaim]:
    """Read a list of claims; none from a file that does not exist. Raises ValueError, naming the file, if one is
    incomplete or has another verdict than those of a study."""
    verdicts = [outcome.value for outcome in Outcome] + ["not measured"]
    claims = _read_entries(path, OtherClaim)
    for claim in claims:
        if claim.verdict not in verdicts:
            raise ValueError(f"{path}: verdict: {claim.verdict}: expected one of {', '.join(verdicts)}")
    return claims


def read_answers(path: Path) -> dict[str, str]:
    """Read a list of answers, and return them by the name of their study; none from a file that does not exist. Raises
    ValueError, naming the file, if one is incomplete."""
    return {entry.study: entry.answer for entry in _read_entries(path, Answer)}


def _read_entries(path: Path, kind: type[Entry]) -> list[Entry]:
    """The entries of a list in a file, none without the file. Raises ValueError, naming the file, if one is
    incomplete."""
    if not path.exists():
        return []
    entries = []
    try:
        for node in OmegaConf.load(path):
            entry = OmegaConf.to_object(OmegaConf.merge(kind, node))
            assert isinstance(entry, kind)
            entries.append(entry)
    except (OmegaConfBaseException, YAMLError, ValueError) as error:
        raise ValueError(f"{path}: {str(error).partition(chr(10))[0]}") from None
    return entries


def read_claim(config: ClaimConfig) -> Claim:
    """Raises ValueError, beginning with the claim's words, if nothing tests it and no reason is given."""
    try:
        if not config.comparisons and config.not_measured is None:
            raise ValueError("no comparison tests it; add one, or not_measured: REASON")
        comparisons = tuple(map(_tested_comparison, config.comparisons))
    except ValueError as error:
        raise ValueError(f"{config.claim} ({config.source}): {error}") from None
    return Claim(config.source, config.claim, config.work, comparisons, config.published, config.not_measured)


def _tested_comparison(config: ComparisonConfig) -> PlannedComparison:
    """A comparison of a claim. Raises ValueError if it claims no ratio, or none that its column can have."""
    published = None
    if config.published is not None:
        published = read_published(config.published.choice, config.published.baseline, config.column)
    claimed = read_claimed(config.claimed, config.column, published)
    return PlannedComparison(config.column, config.choice, config.baseline, claimed, published)


def _own_comparison(config: ComparisonConfig) -> PlannedComparison:
    if config.claimed is not None or config.published is not None:
        raise ValueError(f"{config.choice}: claimed and published belong to a comparison of a claim; move it there")
    return PlannedComparison(config.column, config.choice, config.baseline)
