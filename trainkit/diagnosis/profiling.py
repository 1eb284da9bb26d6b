"""Profiles of the steady steps of a phase, by torch's profiler: shares of a step, its kernels, and a trace."""

import logging
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from trainkit.compiler import graphs
from trainkit.compiler.errors import first_line
from trainkit.diagnosis.findings import Phase
from trainkit.diagnosis.trial import OPTIMIZER, STEP, Subject, Trial
from trainkit.inputs import tensors_of

logger = logging.getLogger(__name__)
NUM_PROFILED = 5  # steps
COPY = re.compile(r"Mem(cpy|set)\b")  # the profiler's names of copies on a GPU, which are no kernels
LAUNCH = re.compile(r"cu(da)?(Launch\w*Kernel\w*|GraphLaunch)")  # the calls of the host that start kernels


@dataclass(frozen=True)
class ProfiledRound:
    """Shares of the step in compiled graphs and in the optimizer. Of a step on a GPU, None on a CPU: the milliseconds
    that its kernels take, their number, and the number of the host's calls that start them, one for a CUDA graph."""

    compiled_frac: float
    optimizer_frac: float
    kernels_ms: float | None = None
    num_kernels: int | None = None
    num_launches: int | None = None


def profile_round(trial: Trial) -> ProfiledRound | None:
    """Profile a few steps of a trial that is warm; None if the profiler saw nothing."""
    events = list(_profile_steps(trial).events() or [])
    on_gpu = _on_gpu(trial)
    total = _kernels_us(events) if on_gpu else _spent_us(events, (STEP,), on_gpu)
    if not total:
        return None
    compiled_frac = _spent_us(events, (graphs.COMPILED_GRAPH, graphs.BACKWARD), on_gpu) / total
    optimizer_frac = _spent_us(events, (OPTIMIZER,), on_gpu) / total
    if not on_gpu:
        return ProfiledRound(compiled_frac, optimizer_frac)
    return ProfiledRound(
        compiled_frac,
        optimizer_frac,
        kernels_ms=total / 1000 / NUM_PROFILED,
        num_kernels=_per_step(event for event in _device_events(events) if not COPY.match(event.name)),
        num_launches=_per_step(event for event in events if LAUNCH.fullmatch(event.name)),
    )


def write_trace(subject: Subject, phases: Iterable[Phase], file: Path) -> None:
    """Write a Chrome trace of a few steady steps: of training, or of forward if training failed.

    A log line says which phase it is of. If there is none, because the profiled steps fail too, it says why.
    """
    names = [phase.name for phase in phases if phase.error is None]
    if not names:
        logger.info("trace: none, no phase runs")
        return
    name = names[-1]
    try:
        with Trial(subject, name, graphs.watched(subject.config.compile)).running() as trial:
            trial.warm_up()
            _profile_steps(trial).export_chrome_trace(str(file))
    except Exception as error:  # of any kind: the diagnosis goes on
        logger.info("trace: none of %s: %s", name, first_line(error))
        return
    logger.info("%s: %d steady steps traced into %s", name, NUM_PROFILED, file)


def _profile_steps(trial: Trial) -> profile:
    activities = [ProfilerActivity.CPU]
    if _on_gpu(trial):
        activities.append(ProfilerActivity.CUDA)
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # else torch's profiler prints on stderr that it starts
    with profile(activities=activities) as profiler:
        for _ in range(NUM_PROFILED):
            trial.first_step()
        if _on_gpu(trial):
            torch.cuda.synchronize()
    return profiler


def _on_gpu(trial: Trial) -> bool:
    return tensors_of(trial.batches[0])[0].is_cuda


def _per_step(events: Iterable[Any]) -> int:
    return round(len(list(events)) / NUM_PROFILED)


def _device_events(events: Iterable[Any]) -> list[Any]:
    """The kernels and the copies on a GPU."""
    on_device = []
    for event in events:
        if event.device_type.name == "CUDA" and not event.is_user_annotation:
            on_device.append(event)
    return on_device


def _kernels_us(events: Iterable[Any]) -> float:
    return sum(event.time_range.elapsed_us() for event in _device_events(events))


def _spent_us(events: Iterable[Any], names: tuple[str, ...], on_gpu: bool) -> float:
    """Microseconds within events of these names: of their kernels on a GPU, else of the CPU."""
    spent = 0.0
    for event in events:
        if event.name in names and event.device_type.name == "CPU":
            event_us = event.device_time_total if on_gpu else event.cpu_time_total
            spent += event_us
    return spent
