"""The columns of a forward-only row that its stages and their calls determine."""

from collections.abc import Sequence
from dataclasses import replace
from statistics import mean
from typing import Any

from trainkit.compiler import dynamo
from trainkit.inference.cascade import CascadeStage, combine_facts
from trainkit.inference.deadlines import Response
from trainkit.metrics.calls import CallMeters
from trainkit.metrics.summary import CompilerReport
from trainkit.results.facts import Stage
from trainkit.stats import percentile

PERCENTILES = (50, 90, 99)


def stage_columns(stages: Sequence[CascadeStage], meters: CallMeters, responses: Sequence[Response]) -> dict[str, Any]:
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
        columns["chain"] = _chain(stages, meters, responses)
    return columns


def first_call_columns(times_ms: Sequence[float], package_load_s: float | None) -> dict[str, Any]:
    """The columns on the calls as they came, of which the first may compile; none without a call."""
    if not times_ms:
        return {}
    columns = {"first_answer_s": times_ms[0] / 1e3 + (package_load_s or 0.0)}
    if len(times_ms) > 1:
        columns |= {"second_call_ms": times_ms[1], "mean_after_first_ms": mean(times_ms[1:])}
    return columns


def request_columns(responses: Sequence[Response]) -> dict[str, Any]:
    """The columns on requests with a deadline; none without a response."""
    if not responses:
        return {}
    emergencies = [response for response in responses if response.is_emergency]
    num_right = num_targets = 0
    for response in responses:
        num_targets += response.answer.num_targets
        if not response.is_missed:
            num_right += response.answer.num_right
    columns = {
        "deadline_miss_frac": miss_frac(responses),
        "emergency_miss_frac": miss_frac(emergencies),
        "late_call_frac": sum(response.in_place for response in responses) / len(responses),
        "correct_in_time_frac": num_right / num_targets if num_targets else None,
    }
    for q in PERCENTILES:
        columns[f"response_time_ms_p{q}"] = percentile([response.time_ms for response in responses], q)
        columns[f"emergency_time_ms_p{q}"] = percentile([response.time_ms for response in emergencies], q)
    return columns


def miss_frac(responses: Sequence[Response]) -> float | None:
    """The share of the requests whose deadline was missed; None without a request."""
    if not responses:
        return None
    return sum(response.is_missed for response in responses) / len(responses)


def _chain(stages: Sequence[CascadeStage], meters: CallMeters, responses: Sequence[Response]) -> list[Stage]:
    entries = []
    for index, stage in enumerate(stages):
        call_frac = None
        if responses:
            call_frac = sum(response.answer.stage == index for response in responses) / len(responses)
        entry = Stage(
            settings=stage.settings,
            model=stage.config.job.model,
            compile_mode=stage.config.compile.mode,
            accuracy=stage.accuracy,
            call_frac=call_frac,
            expected_ms=stage.expected_latencies(),
            **meters.latency(network=index),
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
