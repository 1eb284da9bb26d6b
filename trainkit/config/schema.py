"""What may be asked of a run: the schema, and the checks that need neither torch nor a device."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields
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
PLAIN = {int: "a whole number", float: "a number", bool: "true or false"}  # types, in the words of complaints
# What a link of forward.fallback may set: the network, and how it is run with the same batches on the same device.
OF_A_LINK = ("model", "ckpt_path", "compile", "amp", "trainer.channels_last")
OPTIMIZE_DDP = (True, False, "ddp_optimizer", "python_reducer", "no_optimization")


class ConfigError(ValueError):
    """What the user typed cannot be run. Each complaint is one line: `setting = value: problem; way out`."""

    def __init__(self, *complaints: str):
        super().__init__("\n".join(complaints))
        self.complaints = complaints


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


def misfit(model: str, data: str, takes: str | None, gives: str | None) -> str | None:
    """The complaint about a network that takes another kind of input than the data gives, or None."""
    if takes is None or gives is None or takes == gives:
        return None
    return f"model = {model}: takes {takes}, but data = {data} gives {gives}; choose another model or other data"


def check(config: RunConfig) -> None:
    """Raise ConfigError with every complaint about settings that contradict each other or cannot be."""
    complaints = [*_bounds(config), *_sizes(config), *_compiled(config.compile), *_without_use(config)]
    amp, trainer = config.amp, config.trainer
    if amp.precision.value == "16-mixed" and trainer.accelerator.value == "cpu":
        complaints.append("amp.precision = 16-mixed: fp16 needs a GPU; on a CPU use amp=bf16 or amp=off")
    if config.ddp.optimize_ddp not in OPTIMIZE_DDP:
        words = ", ".join(str(word).lower() for word in OPTIMIZE_DDP)
        complaints.append(f"ddp.optimize_ddp = {config.ddp.optimize_ddp}: expected one of {words}")
    if config.ddp.static_graph and trainer.accumulate_grad_batches > 1:
        complaints.append(
            "ddp.static_graph = True: DDP cannot skip a synchronisation in a static graph; "
            "use trainer.accumulate_grad_batches=1 with it"
        )
    implementation = {name: config.optimizer.get(name) for name in ("fused", "foreach")}
    for name, value in implementation.items():
        if value not in (None, True, False):
            complaints.append(f"optimizer.{name} = {value}: expected true, false or null")
    if all(value is True for value in implementation.values()):
        complaints.append("optimizer.fused = True: excludes optimizer.foreach = True; leave one of them out")
    for group in ("model", "data", "optimizer"):
        if not getattr(config, group).get("_target_"):
            complaints.append(f"{group}._target_ = None: names no class; choose {group}=NAME or set {group}._target_")
    if complaints:
        raise ConfigError(*complaints)


def _compiled(asked: CompileConfig) -> Iterator[str]:
    """A complaint for each setting of torch.compile that contradicts another one."""
    every: list[tuple[str, CompileConfig | PartConfig]] = [("", asked)]
    every += [(f"parts, {part.match}: ", part) for part in asked.parts]
    for subject, of in every:
        if of.backend != "inductor" and of.mode.value not in ("eager", "default"):
            whose = "compile." if of.backend == asked.backend else "its "
            yield (
                f"compile.{subject}mode = {of.mode.value}: modes belong to the backend inductor, and {whose}backend "
                f"= {of.backend}; use mode default with it"
            )
    if asked.mark_dynamic and asked.dynamic is False:
        yield "compile.dynamic = False: excludes compile.mark_dynamic; use compile.dynamic=null with it"
    if asked.mark_dynamic and asked.scope.value == "blocks":
        yield (
            "compile.mark_dynamic: opens dimensions of the batch, and what compile.scope = blocks compiles takes other "
            "tensors; use compile.dynamic=true, or compile.scope=step"
        )
    marked = [(one.input.value, one.dim) for one in asked.mark_dynamic]
    for name, dim in dict.fromkeys(place for place in marked if marked.count(place) > 1):
        yield f"compile.mark_dynamic, {name} {dim}: is marked {marked.count((name, dim))} times; leave one of them"
    for one in asked.mark_dynamic:
        subject = f"compile.mark_dynamic, {one.input.value} {one.dim}: "
        if one.dim < 0:
            yield f"{subject}dim = {one.dim}: expected 0 or more; 0 is the batch"
        if one.min < 2:
            yield f"{subject}min = {one.min}: torch.compile makes sizes 0 and 1 variants of their own; use 2 or more"
        if one.max is not None and one.max <= one.min:
            yield f"{subject}max = {one.max}: expected more than min = {one.min}; null is no limit"
    if asked.on_recompile_limit.value == "raise" and asked.max_recompiles is None:
        yield (
            "compile.on_recompile_limit = raise: holds for compile.max_recompiles alone, not for torch's own limit; "
            "set compile.max_recompiles with it"
        )
    yield from _parts(asked)


def _parts(asked: CompileConfig) -> Iterator[str]:
    """A complaint for each thing about `compile.parts` that would have no effect, and where none is named."""
    if asked.parts and asked.scope.value != "parts":
        names = ", ".join(part.match for part in asked.parts)
        yield f"compile.parts = {names}: not of compile.scope = {asked.scope.value}; use compile.scope=parts with it"
        return
    if asked.scope.value == "parts" and not asked.parts:
        yield "compile.parts = []: compile.scope=parts compiles nothing without; try compile.parts=[{match: NAME}]"
    if not all(part.match for part in asked.parts):
        yield "compile.parts: one has no match; name modules of the network or a function, [{match: NAME}]"


def of_the_other(kind: Kind, forward: ForwardConfig, overrides: Sequence[str]) -> dict[str, Any]:
    """The settings, and their values, that a run of this kind would ignore: the other kind's. WHERE says what to do."""
    if kind.value == "train":
        values = {setting.name: getattr(forward, setting.name) for setting in fields(ForwardConfig)}
        plain = ForwardConfig()
        return {f"forward.{name}": value for name, value in values.items() if value != getattr(plain, name)}
    typed = (override.lstrip("+~").partition("=") for override in overrides)
    return {name: value for name, _, value in typed if is_of(name, TRAINING)}


def _without_use(config: RunConfig) -> Iterator[str]:
    """A complaint for each setting that this kind of run would ignore."""
    kind = config.job.kind
    for name, value in of_the_other(kind, config.forward, config.job.overrides).items():
        yield f"{name} = {value}: {WHERE[kind.value]}"
    if kind.value == "train":
        return
    for one in config.compile.mark_dynamic:
        if one.input.value == "targets":
            yield (
                f"compile.mark_dynamic, targets {one.dim}: forward alone is called without targets; mark inputs alone"
            )
    asked = config.forward
    if asked.deadline_ms is not None and not 0 < asked.deadline_ms < float("inf"):
        yield f"forward.deadline_ms = {asked.deadline_ms}: expected a number of milliseconds above 0, or null"
    if not all(isinstance(link, str) for link in asked.fallback):  # OmegaConf takes lists of lists too
        entries = f"forward.fallback=[{LISTS['forward.fallback']}]"
        yield f"forward.fallback = {asked.fallback}: expected entries as in {entries}"
    if asked.fallback and asked.deadline_ms is None:
        yield f"forward.fallback = {asked.fallback}: chooses by a deadline; set forward.deadline_ms with it"


def is_of(setting: str, names: tuple[str, ...]) -> bool:
    """Whether a dotted setting is one of these, or in one of these groups."""
    return any(setting == name or setting.startswith(f"{name}.") for name in names)


def _bounds(config: RunConfig) -> Iterator[str]:
    """A complaint for each number outside of what it can be. None stands for "not set" and is in bounds."""
    data, trainer = config.data, config.trainer
    if config.seed >= 2**32:
        yield f"seed = {config.seed}: expected a whole number below 2**32; try seed=0"
    for setting, value, least in (
        ("seed", config.seed, 0),
        ("repeat", config.repeat, 0),
        ("data.batch_size", data.get("batch_size"), 1),
        ("data.num_workers", data.get("num_workers"), 0),
        ("compile.max_recompiles", config.compile.max_recompiles, 0),
        ("ddp.bucket_cap_mb", config.ddp.bucket_cap_mb, 1),
        ("trainer.max_epochs", trainer.max_epochs, 1),
        ("forward.num_calls", config.forward.num_calls, 1),
        ("trainer.devices", trainer.devices, 1),
        ("trainer.num_nodes", trainer.num_nodes, 1),
        ("trainer.accumulate_grad_batches", trainer.accumulate_grad_batches, 1),
        ("trainer.warmup_steps", trainer.warmup_steps, 0),
    ):
        if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < least):
            yield f"{setting} = {value}: expected a whole number of at least {least}; try {setting}={least}"
    for setting, number in (
        ("optimizer.lr", config.optimizer.get("lr")),
        ("trainer.gradient_clip_val", trainer.gradient_clip_val),
        ("trainer.memory_limit_gib", trainer.memory_limit_gib),
    ):
        if number is not None and (not isinstance(number, int | float) or not number > 0):
            yield f"{setting} = {number}: expected a number above 0"
    if trainer.max_steps < 1 and trainer.max_steps != -1:
        yield f"trainer.max_steps = {trainer.max_steps}: expected at least 1, or -1 for no limit"
    for setting, limit in (
        ("trainer.limit_train_batches", trainer.limit_train_batches),
        ("trainer.limit_val_batches", trainer.limit_val_batches),
    ):
        if limit is not None and (limit < 0 or (isinstance(limit, float) and limit > 1)):
            yield f"{setting} = {limit}: expected a number of batches (1, 2, ...) or a fraction (0.0 to 1.0)"
    if trainer.limit_train_batches == 0:
        yield "trainer.limit_train_batches = 0: nothing would be trained; use at least 1"


def _sizes(config: RunConfig) -> Iterator[str]:
    """A complaint for each size of the network that contradicts the data's."""
    model, data = config.model, config.data
    for size in ("channels", "image_size", "num_classes", "vocab_size", "seq_len", "pad_token"):
        has, needs = model.get(size), data.get(size)
        if not (isinstance(has, int) and isinstance(needs, int)) or has == needs:
            continue
        if size in ("vocab_size", "seq_len") and has > needs:
            continue  # room to spare: padded vocabularies, a longest length
        yield f"model.{size} = {has}: data = {config.job.data} has {needs}; leave it out and it follows the data"


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
