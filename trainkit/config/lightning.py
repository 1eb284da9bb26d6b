"""Checks of the settings that Lightning gets as they are: callbacks, loggers, arguments of its Trainer."""

from collections.abc import Iterator
from typing import Any

from trainkit.config.open_groups import named_nodes
from trainkit.config.schema import SETTINGS, RunConfig, TrainerConfig
from trainkit.config.settings import typed_value

TRAINER_ARGUMENTS = {  # of Lightning's Trainer that trainer.kwargs does not take: what to do about each
    "precision": "use amp.precision",
    "strategy": "use ddp.strategy",
    "logger": "use logger=NAME",
    "callbacks": "use callbacks=NAME",
    "enable_checkpointing": "use checkpoint.save_top_k",
    "enable_progress_bar": "the progress line is trainkit's own; leave it out",
    "use_distributed_sampler": "data are split over ranks already; leave it out",
    "gradient_clip_algorithm": "gradients are clipped by their norm; leave it out",
    "barebones": "switches off what measures; leave it out",
    "plugins": "they are the run's own; leave it out",
    "default_root_dir": "use hydra.run.dir",
    "num_sanity_val_steps": "would compile for evaluation before the first step; leave it out",
    "inference_mode": "follows ddp.strategy; leave it out",
    "model_registry": "is Lightning's cloud; leave it out",
}


def lightning_complaints(config: RunConfig) -> Iterator[str]:
    yield from _named_nodes(config)
    yield from _trainer_arguments(config.trainer)
    yield from _fewest_steps(config.trainer)


def _named_nodes(config: RunConfig) -> Iterator[str]:
    """A complaint for each entry of a group of several classes that names no class."""
    for group in ("callbacks", "logger"):
        nodes: dict[str, Any] = getattr(config, group)
        for name, node in named_nodes(nodes).items():
            if not isinstance(node, dict):
                names = ", ".join(entry for entry, value in nodes.items() if isinstance(value, dict)) or "NAME"
                way_out = f"each of {group} has a name: {group}.{names}.{name}"
                yield f"{group}.{name} = {typed_value(node)}: is no class with its arguments; {way_out}"
            elif not node.get("_target_"):
                setting = f"{group}.{name}._target_"
                yield f"{setting} = None: names no class; choose {group}=FILE or set {setting}"


def _trainer_arguments(config: TrainerConfig) -> Iterator[str]:
    """A complaint for each argument of Lightning's Trainer that a setting stands for, or that this trainer lacks."""
    for name, value in config.kwargs.items():
        way_out = TRAINER_ARGUMENTS.get(name)
        if way_out is None and f"trainer.{name}" in SETTINGS:
            way_out = f"use trainer.{name}"
        if way_out is not None:
            yield f"trainer.kwargs.{name} = {typed_value(value)}: {way_out}"


def _fewest_steps(config: TrainerConfig) -> Iterator[str]:
    """A complaint if the fewest epochs or steps would have Lightning train beyond the most steps."""
    if config.max_steps <= 0:
        return
    most = f"trainer.max_steps = {config.max_steps}"
    min_epochs, min_steps = config.kwargs.get("min_epochs"), config.kwargs.get("min_steps")
    if min_epochs:
        yield (
            f"trainer.kwargs.min_epochs = {min_epochs}: would train beyond {most}, to the end of an epoch; "
            "leave out one of them, or use trainer.kwargs.min_steps"
        )
    if isinstance(min_steps, int) and min_steps > config.max_steps:
        yield f"trainer.kwargs.min_steps = {min_steps}: is more than {most}; leave out one of them"
