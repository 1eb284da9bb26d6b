"""Checks of a config that need neither torch nor a device."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields
from typing import Any

from trainkit.config.errors import ConfigError
from trainkit.config.schema import (
    LISTS,
    OPTIMIZE_DDP,
    TRAINING,
    WHERE,
    CompileConfig,
    ForwardConfig,
    Kind,
    PartConfig,
    RunConfig,
)


def input_mismatch(model: str, data: str, takes: str | None, gives: str | None) -> str | None:
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
    return {name: value for name, _, value in typed if in_groups(name, TRAINING)}


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


def in_groups(setting: str, names: Iterable[str]) -> bool:
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
