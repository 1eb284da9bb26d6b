"""Remedies for loops that Python unrolls into a graph."""

from trainkit.diagnosis.remedies.matching import Remedy
from trainkit.results.facts import LineSize

MANY = 16  # times that a line is in the graphs: fewer are soon compiled

LAYERS = Remedy(
    cause="layers of one kind",
    why="The graph has the line once for each layer, and torch compiles the same code again for each of them.",
    fix="compile.scope=blocks compiles one block, and the others use its code.",
)
STEPS = Remedy(
    cause="steps of one kind",
    why="Python runs the loop while torch captures it: the graph has the line once for each step, grows with their "
    "number, and another number is another graph.",
    fix="Write it with torch's scan, whose body is compiled once (docs/guide/rewrites.md has its limits). Or take the "
    "steps in chunks: a function that makes some of them, compiled by itself (compile.scope=parts). Or compile the "
    "module that makes one step alone, and leave the loop to Python.",
)


def remedy_for_loop(body: LineSize) -> Remedy:
    """The remedy for a loop with this line: modules that differ are layers."""
    return LAYERS if body.num_modules >= body.num_repeats else STEPS
