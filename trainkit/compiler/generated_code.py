"""The code that a process has compiled, as digests that ranks can compare."""

import hashlib
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from trainkit.compiler import dynamo, inductor

# The number of the GPU: of two ranks that compile the same it is the one difference.
DEVICE_INDEX = re.compile(r"(cuda:|index=|_DeviceGuard\(|set_device\(|get_raw_stream\(|\bstream)\d+")
COMMENT = re.compile(r"^\s*#.*\n", re.MULTILINE)  # with paths of this machine


@dataclass(frozen=True)
class CompiledCode:
    """The number of captured graphs, and a digest of the code that inductor generated for each. None: unknown."""

    num_graphs: int | None
    digests: tuple[str, ...] | None


@dataclass(frozen=True)
class CodeAgreement:
    """Whether all ranks captured equally many graphs and generated the same code, None if unknown, and the reason."""

    graphs: bool | None
    kernels: bool | None
    reason: str | None = None


def compiled_code() -> CompiledCode:
    """The graphs and the code of this process up to now."""
    sources = inductor.graph_sources()
    digests = None
    if sources is not None:
        digests = tuple(sorted(digest(source) for source in sources))
    return CompiledCode(dynamo.num_graphs(), digests)


def digest(source: str) -> str:
    """Equal for generated code that differs by the number of the GPU, or by comments, alone."""
    plain = DEVICE_INDEX.sub(r"\1", COMMENT.sub("", source))
    return hashlib.sha256(plain.encode()).hexdigest()


def compare_code(ranks: Sequence[CompiledCode]) -> CodeAgreement:
    """Compare the code of each rank with rank 0's."""
    counts = [code.num_graphs for code in ranks]
    if None in counts:
        return CodeAgreement(None, None, "this torch does not report graphs")
    if len(set(counts)) > 1:
        listed = ", ".join(f"rank {rank} {count}" for rank, count in enumerate(counts))
        return CodeAgreement(False, None, f"graphs: {listed}")
    first = ranks[0].digests
    for rank, code in enumerate(ranks):
        if first is None or code.digests is None:
            return CodeAgreement(True, None, "this torch does not report generated code")
        num_others = (Counter(code.digests) - Counter(first)).total()
        if num_others > 0 or len(code.digests) != len(first):
            return CodeAgreement(True, False, f"rank {rank} runs other kernels than rank 0 in {num_others} graphs")
    if not first:
        return CodeAgreement(True, None)
    return CodeAgreement(True, True)
