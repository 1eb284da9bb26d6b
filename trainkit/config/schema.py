"""What may be asked of a run: the schema, and the checks that need neither torch nor a device."""

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from hydra.core.config_store import ConfigStore
from hydra.core.hydra_config import HydraConfig
from omegaconf import OmegaConf

# OmegaConf matches an Enum by member name, so the names are the very words that the user types.
MODES = ("eager", "default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")
CUDAGRAPH_MODES = ("reduce-overhead", "max-autotune")
Mode = StrEnum("Mode", {word: word for word in MODES})  # type: ignore[misc]
Scope = StrEnum("Scope", {word: word for word in ("net", "step", "parts", "blocks")})  # type: ignore[misc]
Cache = StrEnum("Cache", {word: word for word in ("warm", "cold")})  # type: ignore[misc]
OnError = StrEnum("OnError", {"raise": "raise", "eager": "eager"})
Input = StrEnum("Input", {word: word for word in ("inputs", "targets")})  # type: ignore[misc]
Precision = StrEnum("Precision", {w: w for w in ("32-true", "bf16-mixed", "16-mixed")})  # type: ignore[misc]
MatmulPrecision = StrEnum("MatmulPrecision", {w: w for w in ("highest", "high", "medium")})  # type: ignore[misc]
Strategy = StrEnum("Strategy", {word: word for word in ("auto", "ddp")})  # type: ignore[misc]
Kind = StrEnum("Kind", {word: word for word in ("train", "forward")})  # type: ignore[misc]
Accelerator = StrEnum("Accelerator", {word: word for word in ("auto", "cpu", "gpu")})  # type: ignore[misc]
Schedule = StrEnum("Schedule", {word: word for word in ("constant", "cosine")})  # type: ignore[misc]
ATTENTION_BACKENDS = ("auto", "cudnn", "flash", "efficient", "math")
AttentionBackend = StrEnum("AttentionBackend", {word: word for word in ATTENTION_BACKENDS})  # type: ignore[misc]
NOT_ARGUMENTS = ("inputs", "language_model")  # what a model's yaml says of the network beside its arguments
# Groups and settings of training. Forward alone has no use for them: what conf/ or an experiment says of them is left
# aside, what was typed is refused.
TRAINING = (
    *("optimizer", "ddp", "check", "meters", "trainer.max_epochs", "trainer.max_steps", "trainer.limit_train_batches"),
    *("trainer.limit_val_batches", "trainer.accumulate_grad_batches", "trainer.gradient_clip_val", "trainer.schedule"),
    *("trainer.warmup_steps", "trainer.activation_checkpointing", "trainer.memory_limit_gib", "data.num_val_batches"),
)
WHERE = {  # to go with a setting of the other kind of run
    "train": "train.py trains; use it with scripts/bench.py",
    "forward": "belongs to training, and scripts/bench.py does not train; leave it out",
}
# The settings that are lists, null or empty where they are not set; an entry of each, as an example.
LISTS = {
    "compile.parts": "{match: NAME}",
    "compile.mark_dynamic": "{input: inputs, dim: 0}",
    "forward.fallback": "'model=simple_net'",
}
# What a link of forward.fallback may set: the network, and how it is run with the same batches on the same device.
OF_A_LINK = ("model", "ckpt_path", "compile", "amp", "trainer.channels_last")
OPTIMIZE_DDP = (True, False, "ddp_optimizer", "python_reducer", "no_optimization")


@dataclass
class PartConfig:
    """Modules of the network, or a function, to compile each by itself, and how; the rest is as in compile.*."""

    match: str = ""
    mode: Mode = "${compile.mode}"  # type: ignore[assignment]
    dynamic: bool | None = "${compile.dynamic}"  # type: ignore[assignment]
    fullgraph: bool = "${compile.fullgraph}"  # type: ignore[assignment]
    backend: str = "${compile.backend}"


@dataclass
class DimConfig:
    """A dimension of a batch's inputs or targets that is dynamic from the start, for sizes from `min` to `max`."""

    input: Input = Input["inputs"]
    dim: int = 0
    min: int = 2
    max: int | None = None


@dataclass
class CompileConfig:
    mode: Mode = Mode["default"]
    dynamic: bool | None = None
    mark_dynamic: list[DimConfig] = field(default_factory=list)
    max_recompiles: int | None = None
    on_recompile_limit: OnError = OnError["eager"]
    fullgraph: bool = False
    backend: str = "inductor"
    scope: Scope = Scope["step"]
    parts: list[PartConfig] = field(default_factory=list)
    cache: Cache = Cache["warm"]
    on_error: OnError = OnError["raise"]


@dataclass
class AmpConfig:
    precision: Precision = Precision["32-true"]
    matmul_precision: MatmulPrecision = MatmulPrecision["highest"]


@dataclass
class DdpConfig:
    strategy: Strategy = Strategy["auto"]
    bucket_cap_mb: int = 25
    static_graph: bool = False
    gradient_as_bucket_view: bool = True
    broadcast_buffers: bool = True
    find_unused_parameters: bool = False
    optimize_ddp: bool | str = True


@dataclass
class TrainerConfig:
    max_epochs: int = 10
    max_steps: int = -1
    accelerator: Accelerator = Accelerator["auto"]
    devices: int | None = None
    num_nodes: int | None = None
    limit_train_batches: int | float | None = None
    limit_val_batches: int | float | None = None
    accumulate_grad_batches: int = 1
    gradient_clip_val: float | None = None
    schedule: Schedule = Schedule["constant"]
    warmup_steps: int = 0
    activation_checkpointing: bool = False
    attention: AttentionBackend = AttentionBackend["auto"]
    channels_last: bool = False
    memory_limit_gib: float | None = None


@dataclass
class ForwardConfig:
    num_calls: int = 200
    deadline_ms: float | None = None
    fallback: list[str] = field(default_factory=list)


@dataclass
class MetersConfig:
    breakdown: bool = False


@dataclass
class JobConfig:
    """What Hydra knows of the job: whether it trains, the names chosen in two groups, the overrides typed, the run
    directory."""

    kind: Kind = Kind["train"]
    model: str = "???"
    data: str = "???"
    overrides: list[str] = field(default_factory=list)
    run_dir: str = "???"
    runs_dir: str = "runs"


@dataclass
class RunConfig:
    """Everything one run is asked to do. `model`, `data`, `optimizer`, `logger` are open `_target_` nodes."""

    model: dict[str, Any] = field(default_factory=dict)
    data: dict[str, Any] = field(default_factory=dict)
    compile: CompileConfig = field(default_factory=CompileConfig)
    amp: AmpConfig = field(default_factory=AmpConfig)
    ddp: DdpConfig = field(default_factory=DdpConfig)
    optimizer: dict[str, Any] = field(default_factory=dict)
    trainer: TrainerConfig = field(default_factory=TrainerConfig)
    forward: ForwardConfig = field(default_factory=ForwardConfig)
    logger: dict[str, Any] = field(default_factory=dict)
    meters: MetersConfig = field(default_factory=MetersConfig)
    check: bool = False
    seed: int = 0
    ckpt_path: str | None = None
    sweep: str | None = None
    repeat: int = 0
    job: JobConfig = field(default_factory=JobConfig)


def _run_dir() -> str:
    """The run directory that Hydra has made; empty where it makes none (`--cfg job --resolve`)."""
    runtime = HydraConfig.get().runtime
    return "" if OmegaConf.is_missing(runtime, "output_dir") else str(runtime.output_dir)


ConfigStore.instance().store(name="schema", node=RunConfig)
OmegaConf.register_new_resolver("run_dir", _run_dir, replace=True)
OmegaConf.register_new_resolver("if", lambda holds, then, otherwise: then if holds else otherwise, replace=True)
OmegaConf.register_new_resolver(
    "sweep_name", lambda name: name or datetime.now().strftime("%Y-%m-%d_%H-%M-%S"), use_cache=True, replace=True
)
