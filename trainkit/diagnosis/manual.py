"""docs/reference/remedies.md, made from the remedies."""

from collections.abc import Iterable

from trainkit.diagnosis.remedies.cuda_graphs import SKIP_REMEDIES
from trainkit.diagnosis.remedies.graph_breaks import BREAK_REMEDIES, REPEATED_RANDOM
from trainkit.diagnosis.remedies.matching import Remedy
from trainkit.diagnosis.remedies.recompiles import FIXED_SIZE, RECOMPILE_REMEDIES
from trainkit.diagnosis.remedies.unrolled_loops import LAYERS, STEPS

MADE_BY = "<!-- Made by `python scripts/reference.py` from the code; edit trainkit/diagnosis/remedies/. -->"
SECTIONS: dict[str, tuple[Remedy, ...]] = {
    "Graph breaks": (*BREAK_REMEDIES, REPEATED_RANDOM),
    "Recompiles": (*RECOMPILE_REMEDIES, FIXED_SIZE),
    "CUDA graphs that are skipped": SKIP_REMEDIES,
    "Loops that Python unrolls": (LAYERS, STEPS),
}


def remedies_page() -> str:
    """docs/reference/remedies.md: each cause, why it stops torch.compile, and what to do."""
    blocks = ["# Remedies", MADE_BY]
    blocks.append(
        "The causes that `scripts/diagnose.py` and the reports know. Each was matched to the messages of torch 2.11 to "
        "2.13. [Diagnose](../guide/diagnose.md) shows how they are found."
    )
    for title, remedies in SECTIONS.items():
        blocks += [f"## {title}", _table(remedies)]
    return "\n\n".join(blocks) + "\n"


def _table(remedies: Iterable[Remedy]) -> str:
    lines = ["| cause | why | what to do |", "| :-- | :-- | :-- |"]
    for remedy in remedies:
        cells = [_escaped(text) for text in (remedy.cause, remedy.why, remedy.fix)]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _escaped(text: str) -> str:
    """The text with Markdown's characters escaped, but for those between backticks."""
    parts = text.split("`")
    for number in range(0, len(parts), 2):
        for character in ("\\", "|", "*", "_", "<"):
            parts[number] = parts[number].replace(character, f"\\{character}")
    return "`".join(parts)
