"""Every setting of a run, with its default, its help and its bounds.

OmegaConf matches an Enum by member name, so the names are the very words that a user types.
"""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from trainkit.config.open_groups import DataSettings, ModelSettings, ObjectiveSettings, OptimizerSettings
from trainkit.config.settings import (
    ABOVE_0,
    COUNT_OR_FRACTION,
    COUNT_OR_MINUS_1,
    FRACTION,
    MILLISECONDS,
    at_least,
    at_most,
    dotted,
    group,
    matching,
    one_of,
    open_group,
    setting,
    settings_of,
)

Mode = StrEnum("Mode", ["eager", "default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs"])
Scope = StrEnum("Scope", ["net", "step", "parts", "blocks"])
Cache = StrEnum("Cache", ["warm", "cold"])
OnError = StrEnum("OnError", ["raise", "eager"])
Input = StrEnum("Input", ["inputs", "targets"])
Precision = StrEnum("Precision", ["32-true", "bf16-mixed", "16-mixed", "bf16-true"])
MatmulPrecision = StrEnum("MatmulPrecision", ["highest", "high", "medium"])
Strategy = StrEnum("Strategy", ["auto", "ddp", "compiled", "fsdp2"])
Compression = StrEnum("Compression", ["none", "bf16"])
Kind = StrEnum("Kind", ["train", "forward"])
Engine = StrEnum("Engine", ["network", "export", "aot_inductor"])
Timing = StrEnum("Timing", ["calls", "stream"])
Late = StrEnum("Late", ["wait", "fallback"])
Accelerator = StrEnum("Accelerator", ["auto", "cpu", "gpu"])
Schedule = StrEnum("Schedule", ["constant", "cosine"])
Profiler = StrEnum("Profiler", ["simple", "advanced", "pytorch"])
MonitorMode = StrEnum("MonitorMode", ["min", "max"])
AT_ONCE, EAGER_THEN_COMPILE = "at_once", "eager_then_compile"  # of compile.start
AttentionBackend = StrEnum("AttentionBackend", ["auto", "cudnn", "flash", "efficient", "math"])

CUDAGRAPH_MODES = ("reduce-overhead", "max-autotune")
POLICIES = ("start", "min_batch_size", "max_variants", "max_failures", "max_memory_frac")  # of compile.*
AUTOTUNE_MODES = ("max-autotune", "max-autotune-no-cudagraphs")
NOT_ARGUMENTS = ("label", "inputs", "language_model")  # of the network; the rest of its node are
GROUPS = "groups"  # of optimizer; the rest of that node are the arguments of the class
METRIC = "metric"  # of objective; the rest of that node are the arguments of the loss


@dataclass
class JobConfig:
    """The job as Hydra knows it: whether it trains, the files chosen in three groups, overrides, the config directories
    of the command line, run directory."""

    kind: Kind = setting(Kind["train"], "forward: of scripts/bench.py", label="kind", column="kind", work=True)
    model: str = "???"
    data: str = "???"
    objective: str = "???"
    overrides: list[str] = setting([])
    search_path: list[str] = setting([])
    run_dir: str = "???"
    runs_dir: str = "runs"


@dataclass
class PartConfig:
    """Modules of the network, or a function, to compile each by itself, and how; the rest is as in compile.*."""

    match: str = setting("", "the name of a module, * for characters between two dots (`blocks.*`), or of a function")
    mode: Mode = setting("${compile.mode}", "eager: is left out")
    dynamic: bool | None = setting("${compile.dynamic}")
    fullgraph: bool = setting("${compile.fullgraph}")
    backend: str = setting("${compile.backend}")
    options: dict[str, Any] = setting("${compile.options}")

    def __post_init__(self) -> None:
        self.options = dotted(self.options)


@dataclass
class DimConfig:
    """A dimension of a batch's inputs or targets that is dynamic from the start, for sizes from `min` to `max`."""

    input: Input = setting(Input["inputs"])
    dim: int = setting(0)
    min: int = setting(2)
    max: int | None = setting(None)


@dataclass
class CompileConfig:
    """torch.compile, applied in place before DDP wraps the network."""

    mode: Mode = setting(Mode["default"], "eager: nothing is compiled, no part either", column="compile_mode")
    dynamic: bool | None = setting(
        None,
        "null: static first, dynamic after a change of shape | true: dynamic from the start | false: always static",
        column="compile_dynamic",
        compiled_only=True,
    )
    fullgraph: bool = setting(False, "true: a graph break is an error", column="compile_fullgraph", compiled_only=True)
    backend: str = setting(
        "inductor", "inductor | aot_eager | eager | ... (modes: inductor)", column="compile_backend", compiled_only=True
    )
    options: dict[str, Any] = setting(
        {},
        "+compile.options.NAME=VALUE: torch.compile(options=...) in place of a mode, by the names of "
        "torch._inductor.list_options(): +compile.options.triton.cudagraphs=true",
        column="compile_options",
        compiled_only=True,
    )
    scope: Scope = setting(
        Scope["step"],
        "step: network and loss in one graph | net: the network alone | parts: the modules that compile.parts names, "
        "each by itself | blocks: each repeated block of the network (of one class, in a ModuleList or Sequential), "
        "compiled once for each size",
        column="compile_scope",
        compiled_only=True,
    )
    parts: list[PartConfig] = setting(
        [],
        "[{match: NAME, mode, dynamic, fullgraph, backend}, ...]: modules (blocks.*, where * stands for characters "
        "between two dots) or a function (package.module.name); mode eager leaves one out, other settings are as in "
        "compile.*; of several that match a module the last one holds",
        entry="{match: NAME}",
        column="compile_parts",
        compiled_only=True,
    )
    mark_dynamic: list[DimConfig] = setting(
        [],
        "[{input: inputs | targets, dim, min, max}, ...]: dimensions of the batch that are dynamic from the start, for "
        "sizes from min (2) to max",
        entry="{input: inputs, dim: 0}",
        column="compile_mark_dynamic",
        compiled_only=True,
    )
    max_recompiles: int | None = setting(
        None,
        "recompiles of the whole run, its validation included; null: as torch limits them, 8 of a function",
        bounds=(at_least(0),),
        column="compile_max_recompiles",
        compiled_only=True,
    )
    on_recompile_limit: OnError = setting(
        OnError["eager"], "eager: variants beyond max_recompiles run uncompiled, and the row says so", silent=True
    )
    cache: Cache = setting(
        Cache["warm"],
        "warm: your compile cache | cold: a fresh one, thrown away afterwards",
        column="compile_cache",
        compiled_only=True,
    )
    artifacts: str | None = setting(
        None,
        "a file with what was compiled: loaded at the start if it exists, else written at the end; in a folder (it "
        "exists, or the text ends in /) each setting and kind of machine has a file; loading runs code, so load your "
        "own alone",
        training_only=True,
        silent=True,
    )
    share_autotuning: bool = setting(
        False,
        "true: with max-autotune each rank tries the kernels of its share of the matrix products, on GPUs",
        training_only=True,
        compiled_only=True,
    )
    on_error: OnError = setting(OnError["raise"], "eager: go on uncompiled, and the row says so", silent=True)
    max_failures: int = setting(
        1,
        "of compiling, with on_error=eager: a call whose compile fails runs uncompiled, and after so many all calls do",
        bounds=(at_least(1),),
        column="compile_max_failures",
        compiled_only=True,
    )
    start: str = setting(
        AT_ONCE,
        "at_once | after:N: a batch of a shape that came N times or less is not compiled for; it uses a variant that "
        "takes it, or runs uncompiled | eager_then_compile: each function runs uncompiled at its first call (torch's "
        "stance), and sizes that differ at its second are dynamic",
        bounds=(
            matching(
                rf"{AT_ONCE}|{EAGER_THEN_COMPILE}|after:[1-9]\d*",
                f"{AT_ONCE}, after:N or {EAGER_THEN_COMPILE}",
                "after:100",
            ),
        ),
        column="compile_start",
        compiled_only=True,
    )
    min_batch_size: int | None = setting(
        None,
        "samples: smaller batches run uncompiled",
        bounds=(at_least(1),),
        column="compile_min_batch_size",
        compiled_only=True,
    )
    max_variants: int | None = setting(
        None,
        "compiled variants of a function that are kept: the least recently used is dropped; null: all, up to torch's "
        "limit",
        bounds=(at_least(1),),
        column="compile_max_variants",
        compiled_only=True,
    )
    max_memory_frac: float | None = setting(
        None,
        "share of the GPU's memory (on a CPU the machine's) in use, by any process: above it nothing is compiled, and "
        "calls without a compiled variant run uncompiled",
        bounds=(FRACTION,),
        column="compile_max_memory_frac",
        compiled_only=True,
    )

    def __post_init__(self) -> None:
        self.options = dotted(self.options)


@dataclass
class AmpConfig:
    precision: Precision = setting(
        Precision["32-true"],
        "Lightning's word; mixed: autocast | bf16-true: parameters, gradients and the optimizer's state too",
        column="precision",
    )
    matmul_precision: MatmulPrecision = setting(
        MatmulPrecision["highest"],
        "of float32 matrix products: torch.set_float32_matmul_precision (high: TF32)",
        column="matmul_precision",
    )


@dataclass
class DdpConfig:
    strategy: Strategy = setting(
        Strategy["auto"],
        "auto: ddp where there are several processes | ddp: DistributedDataParallel | compiled: gradients are averaged "
        "within the compiled graph | fsdp2: parameters, gradients and the optimizer's state are sharded by blocks",
        column="strategy",
        started_only=True,
    )
    bucket_cap_mb: int = setting(25, "as in DistributedDataParallel; of strategy=compiled too", bounds=(at_least(1),))
    shard_optimizer: bool = setting(
        False, "strategy=compiled: each rank updates its share of the parameters, and gathers the others' (ZeRO-1)"
    )
    compression: Compression = setting(
        Compression["none"],
        "bf16: gradients are averaged in bfloat16, with half the traffic (ddp on a GPU, compiled)",
        work=True,
    )
    static_graph: bool = setting(False, "as in DistributedDataParallel")
    gradient_as_bucket_view: bool = setting(True, "as in DistributedDataParallel")
    broadcast_buffers: bool = setting(True, "as in DistributedDataParallel")
    find_unused_parameters: bool = setting(False, "as in DistributedDataParallel")
    timeout_s: float = setting(
        1800.0,
        "seconds that ranks wait for one that does not get on, while none compiles; then the run has failed",
        bounds=(ABOVE_0,),
        silent=True,
    )
    optimize_ddp: bool | str = setting(
        True,
        "torch._dynamo.config.optimize_ddp: true | false | ddp_optimizer | python_reducer | no_optimization",
        bounds=(one_of(True, False, "ddp_optimizer", "python_reducer", "no_optimization"),),
        compiled_only=True,
    )


@dataclass
class TrainerConfig:
    max_epochs: int = setting(10, "passes through the training data", bounds=(at_least(1),), training_only=True)
    max_steps: int = setting(-1, "of the optimizer; -1: no limit", bounds=(COUNT_OR_MINUS_1,), training_only=True)
    accelerator: Accelerator = setting(Accelerator["auto"], "auto: a GPU if any", column="accelerator", silent=True)
    devices: int | None = setting(
        None, "of each machine; null: as torchrun launched, else 1", bounds=(at_least(1),), silent=True
    )
    num_nodes: int | None = setting(None, "machines; null: as torchrun launched, else 1", bounds=(at_least(1),))
    limit_train_batches: int | float | None = setting(
        None, "a number of batches, or a fraction", bounds=(COUNT_OR_FRACTION,), training_only=True
    )
    limit_val_batches: int | float | None = setting(
        None, "a number of batches, or a fraction", bounds=(COUNT_OR_FRACTION,), training_only=True
    )
    val_check_interval: int | float | None = setting(
        None,
        "validate after so many batches, or this fraction of an epoch; null: at its end",
        bounds=(COUNT_OR_FRACTION, ABOVE_0),
        training_only=True,
        column="val_check_interval",
    )
    accumulate_grad_batches: int = setting(
        1, "batches to a step of the optimizer", bounds=(at_least(1), at_most(10**6)), training_only=True, work=True
    )
    gradient_clip_val: float | None = setting(
        None, "the norm that gradients are clipped to", bounds=(ABOVE_0,), training_only=True
    )
    schedule: Schedule = setting(
        Schedule["constant"],
        "of the learning rate, after the warm-up; cosine: to 0 at the last step",
        training_only=True,
    )
    warmup_steps: int = setting(
        0,
        "steps in which the learning rate rises linearly, from 0",
        bounds=(at_least(0), at_most(10**9)),
        training_only=True,
    )
    activation_checkpointing: bool = setting(
        False, "recompute each block of the network in backward", training_only=True
    )
    attention: AttentionBackend = setting(
        AttentionBackend["auto"], "the kernel of scaled_dot_product_attention; auto: torch's choice"
    )
    channels_last: bool = setting(
        False, "images and the weights of convolutions in torch.channels_last", of_a_stage=True
    )
    deterministic: bool = setting(
        False,
        "true: deterministic algorithms alone; an operation without one raises",
        training_only=True,
        column="deterministic",
    )
    profiler: Profiler | None = setting(
        None,
        "Lightning's profiler of this name over one more epoch at the end, in Lightning's own loop; its files are in "
        "RUN_DIR/profile",
        training_only=True,
        silent=True,
    )
    kwargs: dict[str, Any] = setting(
        {},
        "+trainer.kwargs.NAME=VALUE: an argument of Lightning's Trainer that no setting stands for: "
        "+trainer.kwargs.detect_anomaly=true",
        training_only=True,
        column="trainer_kwargs",
    )

    def __post_init__(self) -> None:
        self.kwargs = dotted(self.kwargs)

    log_every_n_steps: int = setting(
        50,
        "loggers get the loss, the learning rate and the norm of the gradients of every so many steps",
        bounds=(at_least(1),),
        training_only=True,
        silent=True,
    )
    progress_s: float | None = setting(
        30.0,
        "seconds between lines about the progress where stderr is no terminal; null: no progress, on a terminal "
        "neither",
        bounds=(ABOVE_0,),
        training_only=True,
        silent=True,
    )
    memory_limit_gib: float | None = setting(
        None,
        "what a GPU has to spare: what takes more is out of memory, as on a smaller card",
        bounds=(ABOVE_0,),
        training_only=True,
    )


@dataclass
class CheckpointConfig:
    """Lightning's ModelCheckpoint, for `best` and `last` in RUN_DIR/checkpoints."""

    monitor: str = setting("val/loss", "the logged figure by which a checkpoint is better than another")
    mode: MonitorMode = setting(MonitorMode["min"], "whether less or more of it is better")
    save_top_k: int = setting(
        1,
        "best checkpoints that are kept; 1: best.ckpt, more: best-EPOCH-STEP.ckpt, 0: none, -1: all",
        bounds=(at_least(-1),),
    )
    save_last: bool = setting(True, "write last.ckpt after each epoch; false: there is nothing to resume from")
    every_n_train_steps: int | None = setting(
        None, "also write last.ckpt after every so many steps; null: after epochs alone", bounds=(at_least(1),)
    )


@dataclass
class ForwardConfig:
    num_calls: int = setting(
        200,
        "calls that are measured, each of one batch: synthetic's training batches, else validation's",
        bounds=(at_least(1), at_most(10**7)),
    )
    engine: Engine = setting(
        Engine["network"],
        "network: the network itself, compiled as compile.* says | export: its graph by torch.export, likewise "
        "| aot_inductor: a package that AOTInductor compiles ahead of time",
        column="engine",
    )
    timing: Timing = setting(
        Timing["calls"],
        "calls: each call is waited for | stream: calls are issued back to back, a window of them is timed as a whole, "
        "and the figure is its time over its calls",
        column="timing",
        work=True,
    )
    calls_per_window: int = setting(20, "of timing=stream", bounds=(at_least(1),), column="calls_per_window", work=True)
    deadline_ms: float | None = setting(
        None,
        "milliseconds from a request to the time when it is due",
        bounds=(MILLISECONDS,),
        column="deadline_ms",
        work=True,
    )
    period_ms: float | None = setting(
        None,
        "milliseconds from one request to the next; null: deadline_ms",
        bounds=(MILLISECONDS,),
        column="period_ms",
        work=True,
    )
    emergency_frac: float = setting(
        0.0,
        "the share of the requests that are emergencies, drawn with the seed",
        bounds=(FRACTION,),
        column="emergency_frac",
        work=True,
    )
    emergency_first: bool = setting(
        False,
        "true: an emergency is served before all requests that wait; the call that is running is not broken off",
        column="emergency_first",
    )
    fallback: list[str] = setting(
        [],
        "['SETTINGS', ...]: further stages of a cascade from most accurate to fastest, the run's own first; each sets "
        "model, compile.*, amp.* or trainer.channels_last; a call goes to the first stage whose measured latency fits "
        "into what is left of the deadline",
        entry="'model=simple_net'",
        column="fallback",
    )
    late: Late = setting(
        Late["wait"],
        "of a call that is not done at its deadline: wait: its answer comes late | fallback: the fastest stage is "
        "called before each other one, and its answer is given at the deadline; the late call runs to its end",
        column="late",
    )


@dataclass
class MetersConfig:
    breakdown: bool = setting(
        False,
        "true: one more epoch at the end, which splits the step into forward, backward and optimizer",
        silent=True,
    )
    communication: bool = setting(
        False,
        "true: a profiled window of steps at the end, on GPUs: their work, and communication that nothing else hides",
        silent=True,
    )


@dataclass
class PublishedConfig:
    """The figures that a source gives for the two sides of a comparison, as it prints them: 8.4707 ms."""

    choice: str = "???"
    baseline: str = "???"


@dataclass
class ComparisonConfig:
    """A choice of settings (`compile.mode=default model.width!=64`) against a baseline, by a column of a row (null: by
    speed).

    In a claim: what is claimed of the ratio, below 1 | above 1 | about NUMBER; null: that of the published figures.
    """

    choice: str = "???"
    baseline: str = "???"
    column: str | None = None
    published: PublishedConfig | None = None
    claimed: str | None = None


@dataclass
class ClaimConfig:
    """What a source says, and the comparisons that test it. A claim that none tests says why in `not_measured`, and has
    its figures, as they are printed, in `published`.

    `work` has the settings of what the source ran (`kind=forward data.batch_size=32`): comparisons are of rows with
    them, or else of all rows, which are then named as other work.
    """

    source: str = "???"
    claim: str = "???"
    work: str = ""
    comparisons: list[ComparisonConfig] = setting([])
    published: str | None = None
    not_measured: str | None = None


@dataclass
class StudyConfig:
    """The question of an experiment, the claims that it tests, comparisons for questions of its own, why the sources
    saw what they saw, and the reason for each thing that it does not measure.

    `also` has the overrides of a second sweep, for jobs outside of the grid that the experiment sweeps.
    """

    question: str = "???"
    claims: list[ClaimConfig] = setting([])
    comparisons: list[ComparisonConfig] = setting([])
    why: str | None = None
    not_measured: dict[str, str] = field(default_factory=dict)
    also: str | None = None


@dataclass
class TunedConfig:
    """The device and the version of torch with which a race found the settings of an experiment."""

    device: str = "???"
    torch: str = "???"


@dataclass
class RunConfig:
    """Everything that is requested of one run. `model`, `data`, `objective` and `optimizer` are
    open `_target_` nodes.

    `callbacks` and `logger` hold such nodes, each by a name."""

    job: JobConfig = group(JobConfig)
    model: dict[str, Any] = open_group(ModelSettings, "the network", column="model", work=True, of_a_stage=True)
    data: dict[str, Any] = open_group(DataSettings, "the data", column="data", work=True)
    objective: dict[str, Any] = open_group(ObjectiveSettings, "the loss and the metric", column="objective", work=True)
    compile: CompileConfig = group(CompileConfig, of_a_stage=True, silent=True)
    amp: AmpConfig = group(AmpConfig, of_a_stage=True, silent=True)
    ddp: DdpConfig = group(DdpConfig, training_only=True)
    trainer: TrainerConfig = group(TrainerConfig)
    optimizer: dict[str, Any] = open_group(OptimizerSettings, training_only=True)
    forward: ForwardConfig = group(ForwardConfig, silent=True)
    callbacks: dict[str, Any] = open_group(
        None, "Lightning's callbacks and your own, each by a name", training_only=True, column="callbacks"
    )
    checkpoint: CheckpointConfig = group(CheckpointConfig, training_only=True, silent=True)
    logger: dict[str, Any] = open_group(None, silent=True)
    meters: MetersConfig = group(MetersConfig, training_only=True)
    check: bool = setting(
        False, "true: compare the first steps, or the outputs of calls, with eager, both against float64", silent=True
    )
    seed: int = setting(0, "of parameters, split, order and dropout", bounds=(at_least(0),), column="seed", silent=True)
    ckpt_path: str | None = setting(None, "a checkpoint to resume from, or `last`", of_a_stage=True, silent=True)
    sweep: str | None = setting(
        None, "a name; under the same name finished jobs are skipped. null: the date", column="sweep_id", silent=True
    )
    optimized_metric: str = setting(
        "val_loss",
        "the column of the row that train.py returns to a sweeper that searches (hydra/sweeper=optuna): val_loss | "
        "val_accuracy | val_metric | step_time_ms_p50 | ...",
        silent=True,
    )
    repeat: int = setting(0, "set by the launcher", bounds=(at_least(0),), column="repeat", silent=True)
    parallel_jobs: int = setting(1, "set by the launcher", bounds=(at_least(1),), column="num_parallel_jobs", work=True)
    study: StudyConfig | None = setting(None, "of an experiment: a question and what answers it", silent=True)
    tuned: TunedConfig | None = setting(None, "of an experiment that a race left: where it was measured", silent=True)


# All groups and settings, by dotted name.
SETTINGS = {declared.name: declared for declared in settings_of(RunConfig)}
TRAINING_ONLY = [name for name, declared in SETTINGS.items() if declared.facts.training_only]
OF_A_STAGE = [name for name, declared in SETTINGS.items() if declared.facts.of_a_stage]
LISTS = {name: declared.facts.entry for name, declared in SETTINGS.items() if declared.facts.entry}
