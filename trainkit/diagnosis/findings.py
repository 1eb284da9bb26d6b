"""What a diagnosis found, as data: phases, findings, stages; written and read as JSON. No torch."""

import json
import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from trainkit.results.typed import parse
from trainkit.stats import Estimate

KINDS = ("wrong result", "graph break", "recompile", "CUDA graphs skipped")


@dataclass(frozen=True)
class Finding:
    """One place in the user's code that keeps torch.compile from its best, or makes it wrong, and what to do.

    `reason` is torch's, `cause`, `why`, `remedy` those of advice.py. `uncompiled`: the function that for this runs
    without torch.compile as a whole; `uncompiled_after`: the one that does so from this line on. What comes after it
    there was not looked at. `num_recompiles`, `recompile_s` (compile seconds) and `recompile_shapes` (of the batches
    that brought them, where these differ and the cause is a size) are of all phases.
    A CUDA-graph skip of training whose line torch does not give is taken to be the one of forward that is like it (same
    cause, as many tensors): where it is another line, that one does not show.
    `cost_ms` is what the line costs a step of the last of its phases; `cost_unknown` says why there is none. See
    costs.py for what the figure is and is not.
    """

    kind: str
    cause: str
    why: str
    remedy: str
    reason: str
    file: str | None = None
    line: int | None = None
    code: str = ""
    uncompiled: str | None = None
    uncompiled_after: str | None = None
    phases: list[str] = field(default_factory=list)
    num_recompiles: int = 0
    recompile_s: float | None = None
    recompile_shapes: list[list[list[int]]] = field(default_factory=list)
    cost_ms: Estimate | None = None
    cost_unknown: str | None = None


@dataclass(frozen=True)
class Phase:
    """Forward (eval mode, no gradient) or training (forward, backward, optimizer), over the same batches.

    `compiled_frac` is the share of the step that ran in compiled graphs, `optimizer_frac` that of the optimizer, which
    nobody compiles: on a CPU shares of the step's time, on a GPU of the time of its kernels. Step times are of steps on
    one batch in which nothing compiled; `gain` is how many times the compiled step the eager one takes.
    `device_busy_frac`, of a GPU: how much of a compiled step its kernels take, the rest of which it waits for the host.
    None: not measured. `error`: why the phase could not be run.
    """

    name: str
    num_graphs: int | None = None
    recompile_limit_hit: bool | None = None
    step_time_ms: Estimate | None = None
    eager_step_time_ms: Estimate | None = None
    gain: Estimate | None = None
    compiled_frac: Estimate | None = None
    optimizer_frac: Estimate | None = None
    device_busy_frac: Estimate | None = None
    error: str | None = None


@dataclass(frozen=True)
class Diagnosis:
    """Of one network on one data set in one mode. `stages` are seconds by backend, then by facts.STAGES."""

    model: str
    data: str
    batch_size: int | None
    compile_mode: str
    precision: str
    overrides: list[str]
    machine: dict[str, Any]
    phases: list[Phase]
    findings: list[Finding]
    stages: dict[str, dict[str, float]] | None = None


def merged(found: Iterable[Finding]) -> list[Finding]:
    """Each place and cause once, with all phases in which it was found, sorted by kind and in the order of finding."""
    distinct: dict[tuple[Any, ...], Finding] = {}
    for finding in _placed(list(found)):
        place = (finding.kind, finding.file, finding.line, finding.cause)
        first = distinct.setdefault(place, finding)
        if first is finding:
            continue
        spent = [s for s in (first.recompile_s, finding.recompile_s) if s is not None]
        distinct[place] = replace(
            first,
            phases=list(dict.fromkeys(first.phases + finding.phases)),
            uncompiled=first.uncompiled or finding.uncompiled,
            uncompiled_after=first.uncompiled_after or finding.uncompiled_after,
            num_recompiles=first.num_recompiles + finding.num_recompiles,
            recompile_s=sum(spent) if spent else None,
            recompile_shapes=[
                *first.recompile_shapes,
                *(shapes for shapes in finding.recompile_shapes if shapes not in first.recompile_shapes),
            ],
        )
    return sorted(distinct.values(), key=lambda finding: KINDS.index(finding.kind))


def _placed(found: list[Finding]) -> list[Finding]:
    """A skip of CUDA graphs that torch gives no line of (in training) is the first that has one and is like it: of the
    same cause and, where torch counts them ("2 instances"), of as many tensors. That it is the same line is assumed."""
    skips = [f for f in found if f.kind == "CUDA graphs skipped"]
    known = {_likeness(f): f for f in reversed(skips) if f.file}
    unplaced = [f.kind == "CUDA graphs skipped" and f.file is None and _likeness(f) in known for f in found]
    return [
        replace(known[_likeness(f)], phases=f.phases) if without else f
        for f, without in zip(found, unplaced, strict=True)
    ]


def _likeness(skip: Finding) -> tuple[str, ...]:
    return skip.cause, *re.findall(r"\((\d+) instances\)", skip.reason)


def write_diagnosis(path: Path | str, diagnosis: Diagnosis) -> None:
    Path(path).write_text(json.dumps(asdict(diagnosis), indent=2) + "\n", encoding="utf-8")


def read_diagnosis(path: Path | str) -> Diagnosis:
    """Fields of a newer schema are left out. ValueError, one line that names the file, for one that is no diagnosis."""
    try:
        diagnosis: Diagnosis = parse(Diagnosis, json.loads(Path(path).read_text(encoding="utf-8")), "it")
        return diagnosis
    except (OSError, ValueError, OverflowError, RecursionError) as error:
        raise ValueError(" ".join(f"{path} is not a diagnosis: {error}".split())) from error


def read_diagnoses(folder: Path | str, pattern: str = "diagnosis*.json") -> tuple[list[Diagnosis], list[str]]:
    """The diagnoses in the files of a directory that match a pattern, and a line for each one that is no diagnosis."""
    read, complaints = [], []
    for path in sorted(Path(folder).glob(pattern)):
        try:
            read.append(read_diagnosis(path))
        except ValueError as error:
            complaints.append(str(error))
    return read, complaints
