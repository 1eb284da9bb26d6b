"""The columns on the calls of a forward-only run: the first ones, those of each shape, requests with a deadline, and
what a program in a file costs. None: not measured."""

from dataclasses import dataclass

from trainkit.results.columns import SLOWEST, OverRepeats, Section, column
from trainkit.results.facts import ShapeLatency, Stage


@dataclass(frozen=True)
class CallCost:
    """Times of calls as they came, and what became of requests with a deadline."""

    first_answer_s: float | None = column(
        None,
        "Time to the first answer: loading the package, if there is one, and the first call with its compiles; without "
        "`compile_startup_s`. Of calls that are waited for, without a cascade.",
        unit="s",
        title="Time to the first answer",
        over_repeats=OverRepeats.MEDIAN,
        shown={Section.PACKAGE: "first answer"},
    )
    second_call_ms: float | None = column(
        None,
        "Time of the second call, in which CUDA graphs are recorded: what one timed call after one to warm up shows.",
        unit="ms",
        title="Time of the second call",
        over_repeats=OverRepeats.MEDIAN,
    )
    mean_after_first_ms: float | None = column(
        None,
        "Mean time of all calls but the first, whatever they do: what a mean after one call to warm up shows.",
        unit="ms",
        title="Mean after one warm-up call",
        over_repeats=OverRepeats.MEDIAN,
    )
    latency_by_shape: list[ShapeLatency] | None = column(
        None,
        "Latencies of calls for each shape of the inputs, where there are several; None for windows of calls.",
    )
    deadline_miss_frac: float | None = column(
        None,
        "Fraction of the requests, one for each steady call, that missed `deadline_ms`.",
        title="Missed deadlines",
        over_repeats=OverRepeats.MEDIAN,
    )
    all_calls_miss_frac: float | None = column(
        None,
        "Fraction of the requests, one for each call from the first on, that missed `deadline_ms`: those that wait "
        "for a compile count too. None for a cascade.",
        title="Missed deadlines of all calls",
        over_repeats=OverRepeats.MEDIAN,
    )
    emergency_miss_frac: float | None = column(
        None,
        "Fraction of the emergencies that missed `deadline_ms`.",
        title="Missed deadlines of emergencies",
        over_repeats=OverRepeats.MEDIAN,
    )
    late_call_frac: float | None = column(
        None,
        "Fraction of the requests whose answer was the fastest stage's, given at the deadline, because a call was late "
        "(`forward.late=fallback`).",
        title="Late calls answered by the fastest stage",
        over_repeats=OverRepeats.MEDIAN,
    )
    correct_in_time_frac: float | None = column(
        None,
        "Fraction of the requests' targets that were predicted within the deadline.",
        title="Correct in time",
        over_repeats=OverRepeats.MEDIAN,
        higher_is_better=True,
    )
    response_time_ms_p50: float | None = column(
        None,
        "Median time from a request's coming to its answer, its wait for earlier requests included.",
        unit="ms",
        title="Median response",
        **SLOWEST,
    )
    response_time_ms_p90: float | None = column(None, "90th percentile.", unit="ms", title="p90 response", **SLOWEST)
    response_time_ms_p99: float | None = column(None, "99th percentile.", unit="ms", title="p99 response", **SLOWEST)
    emergency_time_ms_p50: float | None = column(
        None, "Median response time of the emergencies.", unit="ms", title="Median response to emergencies", **SLOWEST
    )
    emergency_time_ms_p90: float | None = column(
        None, "90th percentile.", unit="ms", title="p90 response to emergencies", **SLOWEST
    )
    emergency_time_ms_p99: float | None = column(
        None, "99th percentile.", unit="ms", title="p99 response to emergencies", **SLOWEST
    )
    chain: list[Stage] | None = column(None, "The stages of a cascade (`forward.fallback`), the run's own first.")


@dataclass(frozen=True)
class PackageCost:
    """The cost of a program in a file, with `forward.engine` export or aot_inductor."""

    export_time_s: float | None = column(
        None,
        "Time of torch.export. AOTInductor's own compile is in `compile_time_s`.",
        unit="s",
        over_repeats=OverRepeats.MEDIAN,
        shown={Section.PACKAGE: "torch.export"},
    )
    package_load_s: float | None = column(
        None,
        "Time to load the program and its parameters from its file, which the process has just written.",
        unit="s",
        title="Load time",
        over_repeats=OverRepeats.MEDIAN,
        shown={Section.PACKAGE: "load"},
    )
    package_bytes: int | None = column(
        None,
        "Size of the file: the program and its parameters.",
        unit="bytes",
        title="Package size",
        over_repeats=OverRepeats.LARGEST,
        shown={Section.PACKAGE: "size"},
    )
