"""What keeps torch.compile from its best on a network, line by line, and what that costs.

Forward is evaluation without gradient, training is forward, backward and optimizer; both run over the same first
batches of the training data, on copies, in one process on one device.
"""

import logging
import multiprocessing
import re
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from trainkit.compiler import facts, graphs
from trainkit.compiler.errors import first_line
from trainkit.compiler.observer import Shapes
from trainkit.compiler.recompiles import Recompile
from trainkit.compiler.source import is_user_code, shortened, source_line
from trainkit.config.errors import ConfigError
from trainkit.config.schema import CompileConfig, Mode, RunConfig
from trainkit.diagnosis import break_costs
from trainkit.diagnosis.findings import Diagnosis, Finding, Phase, merged
from trainkit.diagnosis.remedies.cuda_graphs import remedy_for_skip
from trainkit.diagnosis.remedies.graph_breaks import BELOW_BREAK, RANDOM, REPEATED_RANDOM, remedy_for_break
from trainkit.diagnosis.remedies.matching import Remedy
from trainkit.diagnosis.remedies.recompiles import AFTER_BREAK, BY_BATCH_SHAPE, remedy_for_recompile
from trainkit.diagnosis.rng import Place, draws_of
from trainkit.diagnosis.trial import NUM_BATCHES, PHASES, Subject, Trial, breakable, failure, subject
from trainkit.metrics.environment import machine
from trainkit.results.facts import GraphBreak

logger = logging.getLogger(__name__)
STAGE_BACKENDS = ("eager", "aot_eager", "inductor")


def diagnose(of: Subject) -> Diagnosis:
    """All findings of both phases, with all that is measured of them."""
    return measured(of, look(of))


def measured(of: Subject, seen: Diagnosis) -> Diagnosis:
    """What was seen, with what the compiled share of each phase is and what each graph break costs a step of training
    (of forward, if it is found there alone)."""
    phases: list[Phase] = []
    costly: dict[int, Finding] = {}
    for phase in reversed(seen.phases):
        breaks = [f for f in seen.findings if f.kind == "graph break" and f.file and f.line and phase.name in f.phases]
        breaks = [finding for finding in breaks if id(finding) not in costly]
        timed, found = (phase, {}) if phase.error else break_costs.measured(of, phase, breaks)
        phases, costly = [timed, *phases], costly | found
    return replace(seen, phases=phases, findings=[costly.get(id(finding), finding) for finding in seen.findings])


def look(of: Subject) -> Diagnosis:
    """All findings of both phases, nothing timed."""
    config = of.config
    outcomes = [_found(of, phase) for phase in PHASES]
    return Diagnosis(
        model=config.job.model,
        data=config.job.data,
        batch_size=config.data.get("batch_size"),
        compile_mode=config.compile.mode.value,
        precision=config.amp.precision.value,
        overrides=list(config.job.overrides),
        machine=machine(of.device),
        phases=[phase for phase, _ in outcomes],
        findings=merged(finding for _, findings in outcomes for finding in findings),
    )


def _found(of: Subject, name: str) -> tuple[Phase, list[Finding]]:
    """The phase's steps over all batches, compiled as asked, and what they showed up to their end or their failure."""
    failed = drawn = None
    with suppress(Exception):  # of any kind: the phase's own steps are to say it
        drawn = draws_of(of, name)
    trial = Trial(of, name, of.config.compile)
    logger.info("%s: compiling %d steps and looking for what keeps them from it", name, len(trial.batches))
    with trial.running(of.config.compile.cache.value):
        try:
            for batch in trial.batches:
                trial.step(batch)
        except ConfigError:  # a mark that the network fixes: the user's to correct
            raise
        except Exception as caught:  # of any other kind: what was found before it stays
            failed = caught
        seen, recompiles = trial.compiler.facts(), trial.compiler.recompiles()
        repeated = drawn.repeated(trial) if drawn and not failed else []
    found = [_repeated(place) for place in repeated]
    places = {(finding.file, finding.line) for finding in found}
    breaks = [_break(site) for site in seen.graph_breaks or []]
    # A number that Python drew: what torch says of a branch on it is of tensors.
    found += [_told(one, RANDOM) if (one.file, one.line) in places else one for one in breaks]
    alike = len({tuple(tensor.shape for tensor in batch) for batch in trial.batches}) == 1
    costs = zip(seen.recompile_shapes or [], seen.recompile_times_s or [], strict=True)
    for recompile, (shapes, spent_s) in zip(recompiles, costs, strict=True):
        told = remedy_for_recompile(recompile.reason, of.config.compile.dynamic)
        found.append(_recompile(recompile, told, None if alike else shapes, spent_s))
    if any(finding.file and is_user_code(finding.file) for finding in found if finding.kind == "graph break"):
        below = BELOW_BREAK
        found = [
            _told(finding, below) if finding.file and not is_user_code(finding.file) else finding for finding in found
        ]
    found += [_skip(reason) for reason in _skips(of.config.compile, seen)]
    error = failure(of, name, of.config.compile, failed, NUM_BATCHES) if failed else None
    phase = Phase(name, num_graphs=seen.num_graphs, recompile_limit_hit=seen.recompile_limit_hit, error=error)
    return phase, [replace(finding, phases=[name]) for finding in found]


def _repeated(place: Place) -> Finding:
    told, (file, line) = REPEATED_RANDOM, place
    reason = "the generator moves in each eager step, and stands still in a compiled one"
    at = shortened(file) if file else None
    return Finding("wrong result", told.cause, told.why, told.fix, reason, at, line, source_line(file, line))


def _break(site: GraphBreak) -> Finding:
    told = remedy_for_break(site)
    where: dict[str, Any] = {
        name: getattr(site, name) for name in ("file", "line", "code", "uncompiled", "uncompiled_after")
    }
    reason = " ".join(filter(None, [site.reason, site.explanation]))
    return Finding("graph break", told.cause, told.why, told.fix, reason, **where)


def _recompile(recompile: Recompile, told: Remedy, shapes: Shapes | None, spent_s: float) -> Finding:
    place = recompile.location
    if told is AFTER_BREAK and recompile.broken_at is not None:
        place = recompile.broken_at
    where: dict[str, Any] = {"file": place.file, "line": place.line, "code": place.code}
    counted: dict[str, Any] = {"num_recompiles": 1, "recompile_s": spent_s}
    counted["recompile_shapes"] = [shapes] if shapes and told in BY_BATCH_SHAPE else []
    return Finding("recompile", told.cause, told.why, told.fix, recompile.reason, **where, **counted)


def _told(finding: Finding, told: Remedy) -> Finding:
    """The finding with another advice than that which its words ask for."""
    return replace(finding, cause=told.cause, why=told.why, remedy=told.fix)


def _skip(reason: str) -> Finding:
    told = remedy_for_skip(reason)
    named = re.findall(r'File "([^"]+)", line (\d+)', reason)
    file, line = (named[-1][0], int(named[-1][1])) if named else (None, None)
    code = source_line(file, line)
    return Finding("CUDA graphs skipped", told.cause, told.why, told.fix, reason, file=file, line=line, code=code)


def _skips(config: CompileConfig, seen: facts.CompileFacts) -> list[str]:
    """Why CUDA graphs were skipped; where torch names no reason, what facts conclude."""
    if not seen.num_cudagraph_skips and seen.effective_mode == config.mode.value:
        return []
    concluded = [seen.effective_mode_reason] if "CUDA graphs" in (seen.effective_mode_reason or "") else []
    return seen.cudagraph_skips or [reason for reason in concluded if reason]


def write_code(of: Subject, folder: Path) -> list[Path]:
    """Write the graphs of both phases and the code generated for them into `folder/forward` and `folder/training`, as
    graphs.watched names them, and `folder/index.txt`, which says of what lines each graph was made and where it broke.
    Returns the files; of a phase that fails, those up to its failure, which a line of the log tells. The cache is a
    fresh one: what comes from a cache has no code."""
    said = []
    for phase in PHASES:
        logger.info("%s: compiling with a cold cache for its graphs and kernels", phase)
        (folder / phase).mkdir(parents=True, exist_ok=True)
        captured: list[graphs.Captured] = []
        trial = Trial(of, phase, graphs.watched(of.config.compile, folder / phase, captured))
        try:
            with trial.running("cold"):
                for batch in trial.batches:
                    trial.step(batch)
        except Exception as error:  # of any kind, as of the phase itself
            logger.info("%s: its graphs are those up to %s", phase, first_line(error))
        said.append(graphs.index(phase, captured, folder / phase))
    index = folder / "index.txt"
    index.write_text("\n".join(said), encoding="utf-8")
    return [index, *sorted(path for phase in PHASES for path in (folder / phase).iterdir())]


def stages(config: RunConfig) -> dict[str, dict[str, float]]:
    """Seconds that the first training step's compile spends in each of facts.STAGES, by backend, each in a fresh
    process with a cold cache, without what a process pays once for imports (Compiler.start_up). Without the backends
    under which that step fails, each of which a line of the log tells."""
    seconds = {}
    for backend in STAGE_BACKENDS:
        logger.info("stages: compiling with the backend %s in a process of its own", backend)
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:
            try:
                seconds[backend] = process.submit(stages_of, config, backend).result()
            except Exception as error:  # of any kind: what was found before it is not lost
                logger.info("stages: none of the backend %s: %s", backend, first_line(error))
    return seconds


def stages_of(config: RunConfig, backend: str) -> dict[str, float]:
    """One backend's stages, in this process."""
    asked, inductor = breakable(config.compile), backend == "inductor"
    parts = [
        replace(part, backend=backend, mode=part.mode if inductor or part.mode.value == "eager" else Mode["default"])
        for part in asked.parts
    ]
    mode = asked.mode if inductor else Mode["default"]
    config = replace(config, compile=replace(asked, backend=backend, mode=mode, parts=parts))
    of = subject(config)
    with Trial(of, "training", of.config.compile).running("cold") as trial:
        trial.compiler.start_up(of.device)
        trial.first_step()
        return facts.stages_s() or {}
