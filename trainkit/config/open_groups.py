"""The known settings of the groups that hold a class, `_target_`, and its arguments: model, data, objective ...

And the groups that hold several classes, each by a name: callbacks, logger.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trainkit.config.settings import (
    ABOVE_0,
    BELOW_1,
    BOOLEAN_OR_NULL,
    CLASS_NODE,
    NOT_BELOW_0,
    OWN,
    at_least,
    at_most,
    setting,
)


@dataclass
class ModelSettings:
    """Settings that every network has; the others are the arguments of its class."""

    _target_: str = setting(OWN, "the class of the network; its other settings are that class's arguments")
    label: str = setting(
        OWN, "its name in rows, run directories and W&B; left out: its file's; not an argument of the network"
    )
    inputs: str = setting(
        OWN,
        "what it takes: images | tokens | tokens_and_mask (as input_ids, attention_mask); not an argument of "
        "the network",
    )
    language_model: bool = setting(
        OWN, "true: it predicts every next token, on synthetic data too; not an argument of the network"
    )


@dataclass
class DataSettings:
    """Settings that several data sets have; those of one alone stand in its file."""

    _target_: str = setting(OWN, "the class of the data set; its other settings are that class's arguments")
    batch_size: int = setting(OWN, "samples of each process", bounds=(at_least(1),), column="batch_size")
    batch_sizes: list[int] = setting(
        OWN, "synthetic: [16, 32, 64]: training batches of these sizes, in data.order", column="batch_sizes"
    )
    seq_lens: list[int] = setting(OWN, "synthetic: [32, 64, 128]: of these lengths, up to seq_len")
    order: str = setting(
        OWN,
        "synthetic: cycle: in turn | list: one after another, each for its share of the epoch | random: from the "
        "least to the greatest",
    )
    num_val_batches: int = setting(OWN, "synthetic: batches to validate on", training_only=True)
    path: str | None = setting(None, "a file, a folder, or owner/name of the Hugging Face hub")
    val_path: str | None = setting(
        None, "to validate on. null: what path has beside its training samples, else val_fraction of them"
    )
    val_fraction: float = setting(0.1, "of the samples, to validate on")
    padding: str = setting(
        "longest",
        "synthetic, table, sst2, glue: longest: to the batch's longest sequence | buckets: to the smallest of "
        "data.buckets that holds it | fixed: to seq_len",
    )
    buckets: list[int] = setting([32, 64, 96], "lengths of padding=buckets; seq_len is the last")
    task: str = setting(OWN, "glue: cola | sst2 | mrpc | qqp | mnli | qnli | rte | wnli")
    num_workers: int = setting(0, "processes that load batches", bounds=(at_least(0), at_most(1024)), work=False)
    seed: int = setting("${seed}", "of split and order")
    cache_dir: str = setting('${oc.env:TRAINKIT_CACHE,"~/.cache/trainkit"}', "where prepared data is kept")
    inputs: str = setting(OWN, "what it gives: images | tokens | tokens_and_mask; texts give what the network takes")
    channels: int = setting(OWN, "of an image")
    image_size: int = setting(OWN, "height and width of an image")
    num_classes: int = setting(OWN, "of the targets")
    vocab_size: int = setting(OWN, "tokens that there are")
    seq_len: int = setting(OWN, "tokens of the longest sequence; longer texts are cut")
    pad_token: int = setting(
        0, "the token that fills up short sequences; a network with inputs=tokens sees one like any other"
    )
    next_token: bool = setting(False, "true: every next token is predicted | false: the class of the sequence")


# Defaults that several files of conf/data start from, by the name in their defaults list: `/data_from_files@_here_`.
SHARED_DATA_SETTINGS = {
    "loaded_data": ("num_workers", "seed"),
    "data_from_files": ("path", "val_path", "val_fraction", "num_workers", "seed", "cache_dir"),
    "padded_texts": ("padding", "buckets", "pad_token", "next_token"),
}


@dataclass
class ObjectiveSettings:
    """Settings of the losses; the others are the arguments of the class or function."""

    _target_: str = setting(
        OWN,
        "the loss, (outputs, targets) -> mean over the batch: a class, whose arguments are the other settings, or a "
        "function",
    )
    dim: int = setting(OWN, "cross_entropy: the dimension of the classes; 1: [B, K, H, W], as torch has it")
    metric: dict[str, Any] | None = setting(
        OWN,
        "of the validation: objective.metric._target_=torchmetrics.R2Score, or a torchmetrics.Metric of yours that "
        "sets higher_is_better; its other settings are its arguments; null: none",
        bounds=(CLASS_NODE,),
    )


@dataclass
class OptimizerSettings:
    """Settings that the optimizers have in common; the others are the arguments of the class."""

    _target_: str = setting(OWN, "the class of the optimizer; optimizer.lr and the rest are its arguments")
    lr: float = setting(OWN, "the learning rate", bounds=(ABOVE_0, at_most(1000)))
    weight_decay: float = setting(OWN, "pulls parameters towards 0", bounds=(NOT_BELOW_0, at_most(1000)))
    momentum: float = setting(OWN, "sgd, muon: the share of the last step's direction", bounds=(BELOW_1,))
    groups: dict[str, Any] | None = setting(
        OWN,
        "optimizer.groups._target_=FUNCTION: network -> torch's parameter groups, as "
        "trainkit.training.parameter_groups.decay_matrices; its other settings are its arguments; null: one group",
        bounds=(CLASS_NODE,),
    )
    fused: bool | None = setting(
        None, "true: one kernel for the whole step | null: the same, unless foreach is set", bounds=(BOOLEAN_OR_NULL,)
    )
    foreach: bool | None = setting(
        None,
        "true: each operation on all tensors at once | false: one tensor after another | null: torch's choice",
        bounds=(BOOLEAN_OR_NULL,),
    )


def named_nodes(group: Mapping[str, Any]) -> dict[str, Any]:
    """The `_target_` nodes of a group that holds several, by name. A null, which takes one out, is left out."""
    return {name: node for name, node in group.items() if node is not None}
