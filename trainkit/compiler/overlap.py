"""When a compiled graph waits for a collective."""

from typing import Any

from trainkit.compiler.private_names import require

Node = Any  # torch._inductor.scheduler.BaseSchedulerNode


def wait_where_used(nodes: list[Node]) -> list[Node]:
    """Move each wait down to the first node that uses its result. A wait whose result is the graph's own stays.

    A pass of inductor's `reorder_for_compute_comm_overlap_passes`. Inductor has each collective depend on the one
    before it, to keep their order, and so on its wait: of gathers in a row only the last one would run beside other
    work.
    """
    contains_wait = require("contains_wait")
    used = set()
    for node in nodes:
        used |= _needs(node)
    ordered: list[Node] = []
    waits: list[Node] = []
    for node in nodes:
        if contains_wait(node) and not used.isdisjoint(node.get_buffer_names()):
            waits.append(node)
            continue
        needs = _needs(node)
        due = [wait for wait in waits if not needs.isdisjoint(wait.get_buffer_names())]
        waits = [wait for wait in waits if wait not in due]
        ordered += [*due, node]
    return ordered + waits


def _needs(node: Node) -> set[str]:
    """The buffers that a node reads. What only keeps an order is no need."""
    return {dependency.name for dependency in node.unmet_dependencies if not getattr(dependency, "is_fake", False)}
