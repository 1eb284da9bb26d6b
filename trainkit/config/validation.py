"""Checks of a config that need neither torch nor a device."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import fields
from itertools import chain
from typing import Any

from trainkit.config.errors import refuse
from trainkit.config.lightning import lightning_complaints
from trainkit.config.schema import (
    AT_ONCE,
    CUDAGRAPH_MODES,
    EAGER_THEN_COMPILE,
    POLICIES,
    SETTINGS,
    TRAINING_ONLY,
    CompileConfig,
    DdpConfig,
    DimConfig,
    ForwardConfig,
    Kind,
    PartConfig,
    RunConfig,
)
from trainkit.config.settings import bounds_of, default_of, dotted, in_groups, typed_value, value_of

OTHER_KIND = {  # by kind of run: to do about a setting of the other kind
    "train": "train.py trains; use it with scripts/bench.py",
    "forward": "belongs to training, and scripts/bench.py does not train; leave it out",
}
CALLED_BY_TRAIN = "job.kind = forward: train.py trains; use scripts/bench.py"
OF_DDP = ["static_graph", "gradient_as_bucket_view", "broadcast_buffers", "find_unused_parameters", "optimize_ddp"]
IGNORED_BY_PACKAGE = (  # of compile.*
    "backend", "options", "scope", "dynamic", "fullgraph", "mark_dynamic", "max_recompiles", *POLICIES,
)  # fmt: skip
SIZES = ("channels", "image_size", "num_classes", "vocab_size", "seq_len", "pad_token")
SIZES_WITH_ROOM = ("vocab_size", "seq_len")  # padded vocabularies, a longest length


def check(config: RunConfig) -> None:
    """Raise ConfigError with every complaint about settings that contradict each other or cannot be."""
    refuse(
        chain(
            _bounds(config),
            _sizes(config),
            _compile(config.compile),
            _other_kind(config),
            _training(config),
            _strategy(config),
            _true_precision(config),
            _targets(config),
            lightning_complaints(config),
        )
    )


def _bounds(config: RunConfig) -> Iterator[str]:
    """A complaint for each value outside of its setting's bounds. None stands for "not set" and is in bounds."""
    for name, setting in SETTINGS.items():
        if setting.is_group:
            continue
        value = value_of(config, name)
        follows = str(setting.default).removeprefix("${").removesuffix("}")  # the setting that it is, if not typed
        if value is None or (follows in SETTINGS and value == value_of(config, follows)):
            continue
        broken = [bound for bound in bounds_of(value, setting) if not bound.holds(value)]
        if broken:
            yield broken[0].complaint(name, value)
    if config.trainer.limit_train_batches == 0:
        yield "trainer.limit_train_batches = 0: nothing would be trained; use at least 1"


def _sizes(config: RunConfig) -> Iterator[str]:
    """A complaint for each size of the network that contradicts the data's."""
    for size in SIZES:
        of_model, of_data = config.model.get(size), config.data.get(size)
        if not isinstance(of_model, int) or not isinstance(of_data, int):
            continue
        fits = of_model >= of_data if size in SIZES_WITH_ROOM else of_model == of_data
        if not fits:
            yield (
                f"model.{size} = {of_model}: data.{size} = {of_data} (data = {config.job.data}); use {of_data}, or "
                f"data.{size}={of_model} if the data has that"
            )


def _compile(config: CompileConfig) -> Iterator[str]:
    """A complaint for each setting of torch.compile that contradicts another setting."""
    yield from _mode("", config, config)
    for part in config.parts:
        yield from _mode(f"parts, {part.match}: ", part, config)
    yield from _mark_dynamic(config)
    if config.on_recompile_limit == "raise" and config.max_recompiles is None:
        yield (
            "compile.on_recompile_limit = raise: holds for compile.max_recompiles alone, not for torch's own limit; "
            "set compile.max_recompiles with it"
        )
    yield from _parts(config)
    yield from _policies(config)


def _policies(config: CompileConfig) -> Iterator[str]:
    """A complaint for each policy that another setting leaves without an effect."""
    if config.max_failures > 1 and config.on_error != "eager":
        yield (
            f"compile.max_failures = {config.max_failures}: compile.on_error = raise ends the run at the first; set "
            "compile.on_error=eager with it"
        )
    if config.max_variants is not None and config.max_recompiles is not None:
        yield (
            f"compile.max_variants = {config.max_variants}: compiles dropped variants again, which "
            f"compile.max_recompiles = {config.max_recompiles} forbids; leave one of them out"
        )
    if config.start == EAGER_THEN_COMPILE and config.fullgraph:
        yield (
            f"compile.start = {EAGER_THEN_COMPILE}: torch ignores compile.fullgraph = True then; use "
            "compile.start=after:1, or leave compile.fullgraph out"
        )


def _mode(subject: str, config: CompileConfig | PartConfig, run: CompileConfig) -> Iterator[str]:
    yield from _options(subject, config)
    if config.backend == "inductor" or config.mode in ("eager", "default"):
        return
    backend = "compile.backend" if config.backend == run.backend else "its backend"
    yield (
        f"compile.{subject}mode = {config.mode}: modes belong to the backend inductor, and {backend} "
        f"= {config.backend}; use mode default with it"
    )


def _options(subject: str, config: CompileConfig | PartConfig) -> Iterator[str]:
    if not config.options or config.mode == "eager":
        return
    names = ", ".join(config.options)
    if config.mode != "default":
        yield (
            f"compile.{subject}mode = {config.mode}: torch.compile takes a mode or compile.options ({names}); use mode "
            "default with them, and add the options of the mode"
        )
    if config.backend != "inductor":
        yield f"compile.{subject}backend = {config.backend}: compile.options ({names}) are inductor's; leave them out"


def _mark_dynamic(config: CompileConfig) -> Iterator[str]:
    if not config.mark_dynamic:
        return
    if config.dynamic is False:
        yield "compile.dynamic = False: excludes compile.mark_dynamic; use compile.dynamic=null with it"
    if config.scope == "blocks":
        yield (
            "compile.mark_dynamic: opens dimensions of the batch, and what compile.scope = blocks compiles takes other "
            "tensors; use compile.dynamic=true, or compile.scope=step"
        )
    counts = Counter(f"{mark.input} {mark.dim}" for mark in config.mark_dynamic)
    for dimension, count in counts.items():
        if count > 1:
            yield f"compile.mark_dynamic, {dimension}: is marked {count} times; leave one of them"
    for mark in config.mark_dynamic:
        for problem in _dim_problems(mark):
            yield f"compile.mark_dynamic, {mark.input} {mark.dim}: {problem}"


def _dim_problems(mark: DimConfig) -> Iterator[str]:
    if mark.dim < 0:
        yield f"dim = {mark.dim}: expected 0 or more; 0 is the batch"
    if mark.min < 2:
        yield f"min = {mark.min}: torch.compile makes sizes 0 and 1 variants of their own; use 2 or more"
    if mark.max is not None and mark.max <= mark.min:
        yield f"max = {mark.max}: expected more than min = {mark.min}; null is no limit"


def _parts(config: CompileConfig) -> Iterator[str]:
    """A complaint for parts without an effect, and for missing parts."""
    if config.parts and config.scope != "parts":
        names = ", ".join(part.match for part in config.parts)
        yield f"compile.parts = {names}: not of compile.scope = {config.scope}; use compile.scope=parts with it"
        return
    if config.scope == "parts" and not config.parts:
        yield "compile.parts = []: compile.scope=parts compiles nothing without; try compile.parts=[{match: NAME}]"
    if not all(part.match for part in config.parts):
        yield "compile.parts: one has no match; name modules of the network or a function, [{match: NAME}]"


def of_other_kind(kind: Kind, forward: ForwardConfig, overrides: Sequence[str]) -> dict[str, Any]:
    """The settings, and their values, of the other kind of run. `OTHER_KIND` has the way out.

    A run that trains has no use for forward.*. For a run that does not train, settings of training in conf/ or in an
    experiment are left aside; those that were typed are returned.
    """
    if kind == "forward":
        return _typed_training_settings(overrides)
    changed = {}
    for declared in fields(ForwardConfig):
        value = getattr(forward, declared.name)
        if value != default_of(declared):
            changed[f"forward.{declared.name}"] = value
    return changed


def _typed_training_settings(overrides: Sequence[str]) -> dict[str, str]:
    settings = {}
    for override in overrides:
        name, _, value = override.lstrip("+~").partition("=")
        if in_groups(name, TRAINING_ONLY):
            settings[name] = value
    return settings


def _other_kind(config: RunConfig) -> Iterator[str]:
    """A complaint for each setting that this kind of run would ignore."""
    kind = config.job.kind
    for name, value in of_other_kind(kind, config.forward, config.job.overrides).items():
        yield f"{name} = {value}: {OTHER_KIND[kind]}"
    if kind == "forward":
        yield from _forward(config)


def _forward(config: RunConfig) -> Iterator[str]:
    """A complaint for each setting that calls of the network alone cannot be made with."""
    for mark in config.compile.mark_dynamic:
        if mark.input == "targets":
            yield (
                f"compile.mark_dynamic, targets {mark.dim}: forward alone is called without targets; mark inputs alone"
            )
    yield from _timing(config.forward, config.job.overrides)
    if config.forward.engine != "network":
        yield from _engine(config)
    fallback = config.forward.fallback
    if not all(isinstance(stage, str) for stage in fallback):  # OmegaConf takes lists of lists too
        entries = f"forward.fallback=[{SETTINGS['forward.fallback'].facts.entry}]"
        yield f"forward.fallback = {fallback}: expected entries as in {entries}"
    yield from _requests(config.forward)
    if fallback and config.check:
        yield "check = True: compares one network with eager; leave it out with forward.fallback"


def _requests(forward: ForwardConfig) -> Iterator[str]:
    """A complaint for each setting of requests that another one of them leaves without an effect."""
    if forward.deadline_ms is None:
        if forward.fallback:
            yield f"forward.fallback = {forward.fallback}: chooses by a deadline; set forward.deadline_ms with it"
        for name in ("period_ms", "emergency_frac"):
            value = getattr(forward, name)
            if value:
                yield f"forward.{name} = {value}: is of requests with a deadline; set forward.deadline_ms with it"
    if forward.emergency_first and forward.emergency_frac == 0:
        yield (
            "forward.emergency_first = true: no request is an emergency; set forward.emergency_frac with it, to 0.1 or "
            "another share"
        )
    if forward.late == "fallback" and not forward.fallback:
        yield "forward.late = fallback: no other stage can answer; set forward.fallback with it"


def _engine(config: RunConfig) -> Iterator[str]:
    """A complaint for each setting that a program in a file cannot be made or called with."""
    subject, mode = f"forward.engine = {config.forward.engine}", config.compile.mode
    if config.forward.fallback:
        yield f"{subject}: makes one program, and forward.fallback has several networks; use forward.engine=network"
    if config.compile.on_error == "eager":
        yield f"compile.on_error = eager: {subject} is called as it is; leave it out"
    if config.compile.scope in ("parts", "blocks"):
        yield f"compile.scope = {config.compile.scope}: {subject} has a graph, and no modules; use compile.scope=step"
    if config.forward.engine == "export":
        return
    if mode == "eager":
        yield f"compile.mode = eager: {subject} compiles; use compile.mode=default, or forward.engine=export"
    if mode in CUDAGRAPH_MODES:
        other = "default or max-autotune-no-cudagraphs"
        yield f"compile.mode = {mode}: records CUDA graphs, and a package of {subject} has none; use {other}"
    for declared in fields(CompileConfig):
        value = getattr(config.compile, declared.name)
        if declared.name in IGNORED_BY_PACKAGE and value != default_of(declared):
            yield f"compile.{declared.name} = {typed_value(value)}: has no effect with {subject}; leave it out"


def _timing(forward: ForwardConfig, overrides: Sequence[str]) -> Iterator[str]:
    """A complaint for each setting that contradicts the timing of calls. Windows that an experiment sets, which may
    sweep the timing, are left aside where there are none."""
    num_calls = forward.calls_per_window
    if forward.timing == "calls":
        if any(override.startswith("forward.calls_per_window=") for override in overrides):
            way_out = "set forward.timing=stream with it"
            yield f"forward.calls_per_window = {num_calls}: forward.timing = calls has no windows; {way_out}"
        return
    if forward.deadline_ms is not None:
        yield (
            f"forward.deadline_ms = {forward.deadline_ms}: forward.timing = stream does not time the single call; use "
            "forward.timing=calls with it"
        )
    if forward.num_calls < num_calls:
        yield (
            f"forward.num_calls = {forward.num_calls}: fills no window of forward.calls_per_window = {num_calls}; "
            f"try forward.num_calls={10 * num_calls}"
        )


def _training(config: RunConfig) -> Iterator[str]:
    """A complaint for each two settings of amp, ddp or optimizer that exclude each other."""
    if config.amp.precision == "16-mixed" and config.trainer.accelerator == "cpu":
        yield "amp.precision = 16-mixed: fp16 needs a GPU; on a CPU use amp=bf16 or amp=off"
    if config.ddp.static_graph and config.trainer.accumulate_grad_batches > 1:
        yield (
            "ddp.static_graph = True: DDP cannot skip a synchronisation in a static graph; "
            "use trainer.accumulate_grad_batches=1 with it"
        )
    if config.optimizer.get("fused") is True and config.optimizer.get("foreach") is True:
        yield "optimizer.fused = True: excludes optimizer.foreach = True; leave one of them out"


def _true_precision(config: RunConfig) -> Iterator[str]:
    """A complaint for each setting that a network in bfloat16 as a whole cannot be combined with."""
    subject = f"amp.precision = {config.amp.precision}"
    if config.amp.precision != "bf16-true":
        return
    if config.job.kind == "forward":
        yield f"{subject}: belongs to training; in scripts/bench.py use amp=bf16"
    if config.check:
        yield f"check = true: compares gradients with those of float32 parameters, and not of {subject}; use amp=bf16"
    if config.ddp.strategy in ("compiled", "fsdp2"):
        yield f"ddp.strategy = {config.ddp.strategy}: is not built for {subject}; use ddp, or amp=bf16"


def _strategy(config: RunConfig) -> Iterator[str]:
    """A complaint for each setting that `ddp.strategy` cannot be combined with, or that it would ignore."""
    strategy = config.ddp.strategy
    if config.job.kind == "forward":
        return
    if config.ddp.shard_optimizer:
        yield from _sharded_optimizer(config)
    if strategy in ("auto", "ddp"):
        return
    if strategy == "compiled":
        ignored = OF_DDP
        yield from _compiled_strategy(config.compile)
    else:
        ignored = [*OF_DDP, "bucket_cap_mb", "compression"]
        yield from _fsdp2(config)
    for declared in fields(DdpConfig):
        value = getattr(config.ddp, declared.name)
        if declared.name in ignored and value != default_of(declared):
            subject = f"ddp.{declared.name} = {typed_value(value)}"
            yield f"{subject}: has no effect with ddp.strategy = {strategy}; leave it out"


def _compiled_strategy(config: CompileConfig) -> Iterator[str]:
    subject = "ddp.strategy = compiled"
    if config.mode == "eager":
        yield f"{subject}: averages gradients within the compiled graph, and compile.mode = eager has none; use ddp"
    elif config.scope not in ("step", "net"):
        yield f"{subject}: needs the network in one graph, not compile.scope = {config.scope}; use scope step"
    policies = {"start": config.start != AT_ONCE, "min_batch_size": config.min_batch_size is not None}
    policies["max_memory_frac"] = config.max_memory_frac is not None
    for name, is_set in policies.items():
        if is_set:
            value = getattr(config, name)
            yield f"compile.{name} = {value}: may let a rank run uncompiled, which {subject} cannot; leave it out"


def _sharded_optimizer(config: RunConfig) -> Iterator[str]:
    subject = "ddp.shard_optimizer = true"
    if config.ddp.strategy != "compiled":
        yield f"{subject}: is for ddp.strategy = compiled, not {config.ddp.strategy}; leave one of them out"
    if config.amp.precision == "16-mixed":
        yield f"{subject}: a rank finds overflow of fp16 in its own share alone; use amp=bf16"
    if config.trainer.activation_checkpointing:
        yield f"{subject}: what is computed again would find other parameters; use ddp.strategy=fsdp2"


def _fsdp2(config: RunConfig) -> Iterator[str]:
    subject, mode, scope = "ddp.strategy = fsdp2", config.compile.mode, config.compile.scope
    if mode != "eager" and scope != "blocks":
        yield (
            f"{subject}: gathers parameters between the blocks, where compile.scope = {scope} has no seam; use "
            "compile.scope=blocks or compile.mode=eager"
        )
    if mode in CUDAGRAPH_MODES:
        yield (
            f"{subject}: gathers parameters anew each time, and compile.mode = {mode} records CUDA graphs of fixed "
            "addresses; use default or max-autotune-no-cudagraphs"
        )
    if config.amp.precision == "16-mixed":
        yield f"{subject}: Lightning scales no sharded gradients, as amp.precision = 16-mixed needs it; use amp=bf16"


def _targets(config: RunConfig) -> Iterator[str]:
    for group in ("model", "data", "objective", "optimizer", "callbacks", "logger"):
        for name, value in dotted(getattr(config, group)).items():
            if name.rpartition(".")[2] == "_target_" and not isinstance(value, str | None):
                yield f"{group}.{name} = {value}: expected the name of a class or function"
    for group in ("model", "data", "objective", "optimizer"):
        if not value_of(config, f"{group}._target_"):
            yield f"{group}._target_ = None: names no class; choose {group}=NAME or set {group}._target_"


def input_mismatch(model: str, data: str, takes: str | None, gives: str | None) -> str | None:
    """The complaint about a network that takes another kind of input than the data gives, or None."""
    if takes is None or gives is None or takes == gives:
        return None
    return f"model = {model}: takes {takes}, but data = {data} gives {gives}; choose another model or other data"
