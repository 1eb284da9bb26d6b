"""The columns of a forward-only row that its stages and their calls determine."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from trainkit.compiler import dynamo
from trainkit.inference.cascade import CascadeStage, combine_facts
from trainkit.metrics.calls import CallMeters
from trainkit.metrics.summary import CompilerReport
from trainkit.results.facts import Stage


def stage_columns(stages: Sequence[CascadeStage], meters: CallMeters) -> dict[str, Any]:
    """The columns on the compiler, on time and on memory, and the `chain` of a cascade, as far as calls were made."""
    first, is_cascade = stages[0], len(stages) > 1
    if first.facts is None:
        first.keep_facts()
    known_facts = []
    autotune_s: dict[str, float] = {}
    for stage in stages:
        if stage.facts is not None:
            known_facts.append(stage.facts)
        for kind, seconds in stage.autotune_s.items():
            autotune_s[kind] = autotune_s.get(kind, 0.0) + seconds
    # torch reports a missing variant, but not of which stage.
    reports_eager = dynamo.reports_lookups() and not is_cascade
    report = CompilerReport(autotune_s, reports_eager, first.compiler.skips_function())
    columns = {**vars(combine_facts(known_facts)), **meters.summary(report)}
    if is_cascade:
        columns["chain"] = _chain(stages, meters)
    return columns


def _chain(stages: Sequence[CascadeStage], meters: CallMeters) -> list[Stage]:
    num_calls = len(meters.steady_calls())
    entries = []
    for index, stage in enumerate(stages):
        latency = meters.latency(network=index)
        call_frac = latency["num_calls"] / num_calls if num_calls else None
        entry = Stage(
            settings=stage.settings,
            model=stage.config.job.model,
            compile_mode=stage.config.compile.mode,
            call_frac=call_frac,
            expected_ms=stage.expected_latencies(),
            **latency,
        )
        entries.append(_with_facts(entry, stage))
    return entries


def _with_facts(entry: Stage, stage: CascadeStage) -> Stage:
    if stage.facts is None:
        return entry
    return replace(
        entry,
        effective_mode=stage.facts.effective_mode,
        effective_mode_reason=stage.facts.effective_mode_reason,
        num_graphs=stage.facts.num_graphs,
        num_recompiles=stage.facts.num_recompiles,
    )
