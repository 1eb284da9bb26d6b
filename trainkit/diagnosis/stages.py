"""Measure the stages of a compile: capture, differentiation, lowering, code generation, autotuning."""

import logging
import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace

from trainkit.compiler import facts
from trainkit.compiler.errors import first_line
from trainkit.config.schema import CompileConfig, Mode, PartConfig, RunConfig
from trainkit.diagnosis.trial import Trial, breakable, build_subject

logger = logging.getLogger(__name__)
BACKENDS = ("eager", "aot_eager", "inductor")


def measure_stages(config: RunConfig) -> dict[str, dict[str, float]]:
    """Seconds of each of facts.STAGES in the compile of the first training step, by backend.

    Each backend compiles in a fresh process with a cold cache, and the process's imports (Compiler.start_up) do not
    count. A backend whose step fails is missing, and a log line says why.
    """
    seconds = {}
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])  # the imports happen once
    for backend in BACKENDS:
        logger.info("stages: compiling with the backend %s in a process of its own", backend)
        with ProcessPoolExecutor(1, context) as process:
            try:
                seconds[backend] = process.submit(measure_backend, config, backend).result()
            except Exception as error:  # of any kind: the other measurements are kept
                logger.info("stages: none of the backend %s: %s", backend, first_line(error))
    return seconds


def measure_backend(config: RunConfig, backend: str) -> dict[str, float]:
    """The stages of one backend, in this process."""
    config = replace(config, compile=_with_backend(breakable(config.compile), backend))
    subject = build_subject(config)
    with Trial(subject, "training", subject.config.compile).running("cold") as trial:
        trial.compiler.start_up(subject.device)
        trial.first_step()
        return facts.stages_s() or {}


def _with_backend(config: CompileConfig, backend: str) -> CompileConfig:
    """The config with another backend; inductor alone has options, and modes besides default."""
    options = config.options if backend == "inductor" else {}
    parts = [replace(part, backend=backend, mode=_mode_with(part, backend), options=options) for part in config.parts]
    return replace(config, backend=backend, mode=_mode_with(config, backend), options=options, parts=parts)


def _mode_with(config: CompileConfig | PartConfig, backend: str) -> Mode:
    if backend == "inductor" or config.mode == "eager":
        return config.mode
    return Mode["default"]
