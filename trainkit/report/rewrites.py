"""The tables of docs/guide/rewrites.md: constructs, their outcomes under torch.compile, and the gains of rewrites."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from omegaconf import OmegaConf

from trainkit.analysis.choices import rows_with
from trainkit.analysis.grouping import machine_facts
from trainkit.analysis.pairs import compare_pairs
from trainkit.report.claims import MARKS
from trainkit.report.labels import machine_label
from trainkit.report.markdown import escape, text_table
from trainkit.report.pairwise import BESIDE_STOPPED, single_text
from trainkit.results.row import Row
from trainkit.results.runs import read_rows

STUDIES = ("control_flow", "rewrites", "known_shapes", "uncompilable")  # whose rows have both forms of a network
REWRITTEN = "model={network} model.rewritten=true compile.mode=default compile.scope=step"
PROBLEM = "model={network} model.rewritten=false compile.mode=default compile.scope=step"
UNCOMPILED = "model={network} model.rewritten=false compile.mode=eager"
TABLES = ("causes", "gains", "remedies", "gradients")


@dataclass
class Construct:
    """A construct by the name of its code in trainkit/compiler/constructs.py.

    `outcomes` and `gradients` are by version of torch. A cause has a `remedy`, and `networks` that have it and its
    rewrite. A rewrite may have `same_as`, a plain construct that computes the same, with which `gradients` compares it.
    """

    name: str = "???"
    text: str = "???"
    remedy: str = ""
    networks: list[str] = field(default_factory=list)
    same_as: str = ""
    outcomes: dict[str, str] = field(default_factory=dict)
    gradients: dict[str, str] = field(default_factory=dict)


def read_constructs(path: Path) -> list[Construct]:
    constructs = []
    for node in OmegaConf.load(path):
        construct = OmegaConf.to_object(OmegaConf.merge(Construct, node))
        assert isinstance(construct, Construct)
        constructs.append(construct)
    return constructs


def write_constructs(path: Path, constructs: Sequence[Construct]) -> None:
    nodes = []
    for construct in constructs:
        values = OmegaConf.to_container(OmegaConf.structured(construct))
        assert isinstance(values, dict)
        nodes.append({name: value for name, value in values.items() if value})
    path.write_text(OmegaConf.to_yaml(OmegaConf.create(nodes)), encoding="utf-8")


def with_tables(page: str, constructs: Sequence[Construct], measurements: Path) -> str:
    """The page with its tables made anew, each between `<!-- NAME -->` and `<!-- end of NAME -->`."""
    rows_by_study: dict[str, list[Row]] = {}
    for study in STUDIES:
        file = measurements / f"{study}.jsonl"
        if file.exists():
            rows_by_study[study] = read_rows(file)
    versions = list(constructs[0].outcomes)
    tables = (
        _causes(constructs, versions),
        _gains(constructs, rows_by_study),
        _remedies(constructs, versions),
        _gradients(constructs, versions),
    )
    for name, table in zip(TABLES, tables, strict=True):
        start, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
        before, _, after = page.partition(start)
        page = f"{before}{start}\n\n{table}\n\n{end}{after.partition(end)[2]}"
    return page


def _causes(constructs: Sequence[Construct], versions: Sequence[str]) -> str:
    lines = []
    for construct in constructs:
        if construct.remedy:
            outcomes = [construct.outcomes[version] for version in versions]
            networks = "<br>".join(map(escape, construct.networks))
            lines.append([construct.text, *outcomes, construct.remedy, networks or "-"])
    return text_table(["in forward", *(f"torch {version}" for version in versions), "write instead", "network"], lines)


def _gains(constructs: Sequence[Construct], rows_by_study: Mapping[str, list[Row]]) -> str:
    """For each network the speed of its compiled rewrite over it, compiled and in eager."""
    lines = []
    for construct in constructs:
        for network in construct.networks:
            lines.append(_gains_of(network, construct.text, rows_by_study))
    titles = ["network", "in forward", "compiled rewrite over it, compiled", "compiled rewrite over it, in eager"]
    table = text_table(titles, lines)
    machines = sorted({machine_label(machine_facts(row)) for rows in rows_by_study.values() for row in rows})
    notes = [table, "Measured on: " + "; ".join(escape(machine) for machine in machines) + "."]
    if BESIDE_STOPPED in table:
        notes.append(f"{BESIDE_STOPPED} {MARKS[BESIDE_STOPPED].replace('(', '(../studies/')}")
    return "\n\n".join(notes)


def _gains_of(network: str, text: str, rows_by_study: Mapping[str, list[Row]]) -> list[str]:
    """A line of the table, from the first study that has the network compiled in both forms."""
    rewritten, problem, uncompiled = (form.format(network=network) for form in (REWRITTEN, PROBLEM, UNCOMPILED))
    for study, rows in rows_by_study.items():
        own_rows = rows_with(f"model={network}", rows)
        over_compiled = compare_pairs(own_rows, rewritten, problem)
        over_eager = compare_pairs(own_rows, rewritten, uncompiled)
        if over_compiled and over_eager:
            gains = [escape(single_text(pairs[0])) for pairs in (over_compiled, over_eager)]
            return [f"[{escape(network)}](../studies/{study}.md)", text, *gains]
    return [escape(network), text, "not measured yet", "not measured yet"]


def _remedies(constructs: Sequence[Construct], versions: Sequence[str]) -> str:
    lines = []
    for construct in constructs:
        if not construct.remedy:
            lines.append([construct.text, *(construct.outcomes[version] for version in versions)])
    return text_table(["rewrite", *(f"torch {version}" for version in versions)], lines)


def _gradients(constructs: Sequence[Construct], versions: Sequence[str]) -> str:
    lines = []
    for construct in constructs:
        if construct.same_as:
            lines.append([construct.text, *(construct.gradients[version] for version in versions)])
    return text_table(["trained", *(f"torch {version}" for version in versions)], lines)
