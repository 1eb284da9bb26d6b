"""The network with its loss, as it is compiled: built from the config, with the transformations before compilation."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import apply_activation_checkpointing

from trainkit.compiler import regions
from trainkit.config.errors import ConfigError
from trainkit.config.schema import RunConfig
from trainkit.inputs import Inputs, call, map_tensors, tensors_of
from trainkit.training.criterion import Criterion, logits_of, trained_logits
from trainkit.training.loss import CrossEntropy, linear_cross_entropy
from trainkit.training.precision import TRUE_DTYPES, autocast_dtype


class Objective(nn.Module):
    """A network and its criterion.

    forward(inputs, targets) calls the loss with `net(prepare(inputs))`, and returns the mean loss in training, and
    (mean loss, what the metric counts) in evaluation. All of it is one module, so that torch.compile takes the
    preparation of the data (augmentation), the network and the loss into one graph, in which the logits need not be
    written out in float32.

    A language model may declare `logits_are_head_of_features = True`: `net(x) == net.head(net.features(x))`, with an
    nn.Linear without bias as head. Under bfloat16 autocast it trains with `linear_cross_entropy`, in every mode, unless
    `whole_net` requires that the network itself is called, and compiled alone, or the loss is another one.
    """

    def __init__(
        self,
        net: nn.Module,
        prepare: nn.Module | None = None,
        whole_net: bool = False,
        criterion: Criterion | None = None,
    ):
        super().__init__()
        criterion = criterion or Criterion()
        self.net: Any = net
        self.prepare = prepare or nn.Identity()
        self.loss: Any = criterion.loss  # whose parameters are trained, too
        self.criterion = criterion
        self.takes_logits = criterion.takes_logits
        is_fusible = isinstance(self.loss, CrossEntropy) and self.loss.dim == -1
        self.whole_net = whole_net or not is_fusible or not getattr(net, "logits_are_head_of_features", False)

    def forward(self, inputs: Inputs, targets: Any) -> Tensor | tuple[Tensor, Any]:
        inputs = self.prepare(inputs)
        if self.training and not self.whole_net and autocast_dtype(tensors_of(inputs)[0]) == torch.bfloat16:
            features = call(self.net.features, inputs).flatten(0, -2).bfloat16()  # [N, D]
            return linear_cross_entropy(features, self.net.head.weight.bfloat16(), targets.flatten())
        outputs = call(self.net, inputs)
        if self.takes_logits:
            outputs = trained_logits(outputs)
        loss: Tensor = self.loss(outputs, targets)
        if self.training:
            return loss
        return loss, self.criterion.scored(outputs, targets)


class Forward(nn.Module):
    """A network and the preparation of its inputs, without a loss: inputs -> the logits in the outputs, or else the
    outputs, whatever they are."""

    def __init__(self, net: nn.Module, prepare: nn.Module):
        super().__init__()
        self.net: Any = net
        self.prepare = prepare

    def forward(self, inputs: Inputs) -> Any:
        parts: dict[str, Any] = self._modules  # as attributes they take the host 0.7 us each, of calls of 5
        prepare, net = parts["prepare"], parts["net"]
        if type(prepare) is not nn.Identity:  # whose call takes 2 us
            inputs = prepare(inputs)
        return logits_of(call(net, inputs))


class ChannelsLast(nn.Module):
    """Converts images [B, C, H, W] to torch.channels_last; returns other inputs unchanged."""

    def forward(self, inputs: Inputs) -> Inputs:
        return map_tensors(self._converted, inputs)

    def _converted(self, tensor: Tensor) -> Tensor:
        if tensor.ndim != 4:
            return tensor
        return tensor.contiguous(memory_format=torch.channels_last)


class Cast(nn.Module):
    """Converts floating-point inputs to a dtype, in the graph: what prepares the data may compute in float32."""

    def __init__(self, dtype: torch.dtype):
        super().__init__()
        self.dtype = dtype

    def forward(self, inputs: Inputs) -> Inputs:
        return map_tensors(self._converted, inputs)

    def _converted(self, tensor: Tensor) -> Tensor:
        if not tensor.is_floating_point():
            return tensor
        return tensor.to(self.dtype)


def num_right(outputs: Any, targets: Tensor, num_classes: int) -> int | None:
    """The number of targets that the outputs predict; None if they are no logits of the targets' classes."""
    if not isinstance(outputs, Tensor) or not outputs.is_floating_point() or targets.is_floating_point():
        return None
    if outputs.shape[:-1] != targets.shape or outputs.shape[-1] < num_classes:
        return None
    return int((outputs.argmax(-1) == targets).sum())


def build_objective(
    config: RunConfig, net: nn.Module, prepare: nn.Module | None = None, criterion: Criterion | None = None
) -> Objective:
    """The objective that a config trains, before it is compiled.

    The order of all transformations of a network:
      1. channels_last                  here
      2. activation checkpointing       here
      3. averaging in the graph,
         or shares of the optimizer     Task.configure_model, with ddp.strategy=compiled
      4. compilation, in place          Task.configure_model
      5. sharding                       Task.configure_model, with ddp.strategy=fsdp2
      6. move to the device             Lightning, from here on; with amp.precision=bf16-true conversion to it before
      7. parameters of a checkpoint
      8. DDP
    The later ones keep the layout and the names of the parameters.

    Raises ConfigError if the network has nothing to transform as requested.
    """
    objective = Objective(net, prepare, config.compile.scope == "net", criterion)
    if config.trainer.channels_last:
        convert_to_channels_last(objective)
    dtype = TRUE_DTYPES.get(config.amp.precision)
    if dtype is not None:
        objective.prepare = nn.Sequential(objective.prepare, Cast(dtype))
    if config.trainer.activation_checkpointing:
        checkpoint_blocks(objective.net)
    return objective


def convert_to_channels_last(objective: Objective | Forward) -> None:
    """Lay 4-d weights out as torch.channels_last, and images after their preparation, in the graph.

    The names, shapes and values in a checkpoint stay. Raises ConfigError if no weight is 4-d.
    """
    if not any(parameter.ndim == 4 for parameter in objective.net.parameters()):
        raise ConfigError(
            f"trainer.channels_last = True: {type(objective.net).__name__} has no 4-d weights (convolutions); "
            "set it to false"
        )
    objective.net.to(memory_format=torch.channels_last)
    objective.prepare = nn.Sequential(objective.prepare, ChannelsLast())


def checkpoint_blocks(net: nn.Module) -> None:
    """Recompute the activations of each block in backward instead of storing them. Names in a checkpoint stay.

    BatchNorm updates its running statistics in both forward passes. Raises ConfigError if the network has no blocks
    (compile.scope=blocks).
    """
    blocks = set(regions.blocks(net).values())
    if not blocks:
        raise ConfigError(
            f"trainer.activation_checkpointing = True: {type(net).__name__} has no blocks to checkpoint "
            "(modules with layers of their own, in an nn.ModuleList or nn.Sequential or several of one class); set it "
            "to false"
        )
    apply_activation_checkpointing(net, check_fn=lambda module: module in blocks)
