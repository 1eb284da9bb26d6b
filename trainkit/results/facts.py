"""Nested facts of a row: graph breaks, graphs, kernels, regions, policies, latencies by shape, stages of a cascade.

Every field has a default, so rows written before a field existed are still read.
"""

from dataclasses import dataclass, field


@dataclass(frozen=True)
class GraphBreak:
    """A source location in the user's code at which a graph broke.

    `uncompiled` names a function that runs without torch.compile as a whole because of this break, `uncompiled_after`
    a function that does so from this line on.
    """

    file: str | None = None
    line: int | None = None
    reason: str = ""  # the first line of torch's reason
    id: str | None = None  # torch's number for the reason, as in "GB0124"
    explanation: str = ""
    code: str = ""  # the source line
    uncompiled: str | None = None
    uncompiled_after: str | None = None


@dataclass(frozen=True)
class GraphSize:
    """A captured graph; parameters and buffers count as inputs."""

    num_operations: int = 0
    num_inputs: int = 0


@dataclass(frozen=True)
class LineSize:
    """A source line and the operations of the captured graphs that it makes, in all calls below it if `num_repeats`.

    `num_repeats` is how often the graphs have the line, that Python ran again and again while torch captured;
    `num_modules` is the number of different modules that it called then.
    """

    file: str | None = None
    line: int | None = None
    code: str = ""
    num_operations: int = 0
    num_repeats: int = 1
    num_modules: int = 1


@dataclass(frozen=True)
class TunedKernel:
    """A kernel that was the fastest of those that autotuning timed, and for how many operations of a kind."""

    operation: str = ""  # torch's name, as `addmm`
    kernel: str = ""  # torch's name, without its number: `triton_mm`; that of ATen's is `mm` or the like
    num_operations: int = 0


@dataclass(frozen=True)
class Region:
    """A module or function that was compiled by itself."""

    name: str = ""
    mode: str = ""
    dynamic: bool | None = None
    fullgraph: bool = False
    backend: str = ""
    num_graphs: int | None = None  # compiled during its own calls; None: this torch does not report them
    reused: bool | None = None  # it has no graph of its own and ran those of another region; None in old rows
    num_calls: int = 0


@dataclass(frozen=True)
class Policy:
    """A setting that lets calls of the network run uncompiled, and the calls that did so, validation's among them."""

    setting: str = ""
    num_uncompiled: int = 0
    uncompiled_frac: float = 0.0  # of all calls


@dataclass(frozen=True)
class ShapeLatency:
    """Steady calls with inputs of one shape."""

    shape: list[int] = field(default_factory=list)
    num_calls: int = 0
    time_ms_p50: float | None = None
    time_ms_p90: float | None = None
    time_ms_p99: float | None = None


@dataclass(frozen=True)
class ExpectedLatency:
    """The latency that a cascade expects of a stage with inputs of one shape, by its calls so far.

    `time_ms` decides whether a call fits into the remaining time, `time_ms_p50` which stage is the fastest.
    """

    shape: list[int] = field(default_factory=list)
    time_ms: float | None = None
    time_ms_p50: float | None = None


@dataclass(frozen=True)
class Stage:
    """One network of a cascade, and its share of the requests' answers.

    `accuracy` is over all batches of the calls, whichever stage serves them; `num_calls` and times are of steady calls.
    """

    settings: str = ""  # its entry of `forward.fallback`; "" for the run's own settings
    model: str = ""
    compile_mode: str = ""
    effective_mode: str | None = None
    effective_mode_reason: str | None = None
    num_graphs: int | None = None
    num_recompiles: int | None = None
    accuracy: float | None = None
    call_frac: float | None = None
    num_calls: int = 0
    time_ms_p50: float | None = None
    time_ms_p90: float | None = None
    time_ms_p99: float | None = None
    expected_ms: list[ExpectedLatency] = field(default_factory=list)
