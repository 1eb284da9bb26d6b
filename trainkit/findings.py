"""What a diagnosis found, as data: phases, findings, stages; written and read as JSON. No torch."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

KINDS = ("graph break", "recompile", "CUDA graphs skipped")


@dataclass(frozen=True)
class Finding:
    """One place in the user's code that keeps torch.compile from its best, and what to do.

    `reason` is torch's, `cause`, `why`, `remedy` those of advice.py. `uncompiled`: the function that for this runs
    without torch.compile as a whole. `num_recompiles`, `recompile_s` (compile seconds) and `recompile_shapes` (of the
    batches that brought them, where these differ) are of all phases.
    `cost_ms` is what the line costs a training step, `cost_noise_ms` how far two measurements of one program lay apart;
    `cost_unknown` says why there is none. See diagnose.py for what the figure is and is not.
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
    phases: list[str] = field(default_factory=list)
    num_recompiles: int = 0
    recompile_s: float | None = None
    recompile_shapes: list[list[list[int]]] = field(default_factory=list)
    cost_ms: float | None = None
    cost_noise_ms: float | None = None
    cost_unknown: str | None = None


@dataclass(frozen=True)
class Phase:
    """Forward (eval mode, no gradient) or training (forward, backward, optimizer), over the same batches.

    `compiled_frac` is the share of the step that ran in compiled graphs, `optimizer_frac` that of the optimizer, which
    nobody compiles: on a CPU shares of the step's time, on a GPU of the time of its kernels. Step times are medians of
    steps on one batch in which nothing compiled. None: not measured. `error`: why the phase could not be run.
    """

    name: str
    num_graphs: int | None = None
    recompile_limit_hit: bool | None = None
    step_time_ms: float | None = None
    eager_step_time_ms: float | None = None
    compiled_frac: float | None = None
    optimizer_frac: float | None = None
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
    for finding in found:
        place = (finding.kind, finding.file, finding.line, finding.cause)
        first = distinct.setdefault(place, finding)
        if first is finding:
            continue
        spent = [s for s in (first.recompile_s, finding.recompile_s) if s is not None]
        distinct[place] = replace(
            first,
            phases=list(dict.fromkeys(first.phases + finding.phases)),
            uncompiled=first.uncompiled or finding.uncompiled,
            num_recompiles=first.num_recompiles + finding.num_recompiles,
            recompile_s=sum(spent) if spent else None,
            recompile_shapes=[
                *first.recompile_shapes,
                *(shapes for shapes in finding.recompile_shapes if shapes not in first.recompile_shapes),
            ],
        )
    return sorted(distinct.values(), key=lambda finding: KINDS.index(finding.kind))


def write_diagnosis(path: Path | str, diagnosis: Diagnosis) -> None:
    Path(path).write_text(json.dumps(asdict(diagnosis), indent=2) + "\n", encoding="utf-8")


def read_diagnosis(path: Path | str) -> Diagnosis:
    """ValueError, naming the file, for one that is no diagnosis."""
    try:
        known = json.loads(Path(path).read_text(encoding="utf-8"))
        lists: dict[str, Sequence[Any]] = {
            "phases": [Phase(**phase) for phase in known["phases"]],
            "findings": [Finding(**finding) for finding in known["findings"]],
        }
        return Diagnosis(**(known | lists))
    except (ValueError, TypeError, KeyError) as error:
        raise ValueError(f"{path} is not a diagnosis: {error}") from error
