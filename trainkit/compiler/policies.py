"""Policies: the settings that let calls run uncompiled, decided call by call."""

from collections import Counter
from collections.abc import Callable, Hashable
from dataclasses import replace
from typing import Any

import torch

from trainkit.config.schema import AT_ONCE, EAGER_THEN_COMPILE, CompileConfig
from trainkit.inputs import tensors_of
from trainkit.results.facts import Policy

START, MIN_BATCH_SIZE = "compile.start", "compile.min_batch_size"
MAX_MEMORY_FRAC, ON_ERROR = "compile.max_memory_frac", "compile.on_error"
REST = "the rest of an epoch"  # no setting: a variant for one short batch would cost more than it gains
# Torch's stance for a call that is not compiled for. A small batch runs as eager does; the others may use a variant.
STANCES = {
    START: "eager_on_recompile",
    MIN_BATCH_SIZE: "force_eager",
    MAX_MEMORY_FRAC: "eager_on_recompile",
    ON_ERROR: "force_eager",
    REST: "eager_on_recompile",
}


def without_policies(config: CompileConfig) -> CompileConfig:
    """The same settings, with every call compiled."""
    return replace(config, start=AT_ONCE, min_batch_size=None, max_memory_frac=None, max_variants=None, max_failures=1)


class Policies:
    """Chooses for each call the setting that lets it run uncompiled, and counts these calls.

    A call is one with a batch of some shapes, in training or in validation; `choose` comes before it, `count` after.
    `memory_frac` returns the share of a device's memory that is in use. It is asked only before calls that may need a
    compile.
    """

    def __init__(self, config: CompileConfig, memory_frac: Callable[[torch.device], float]):
        self.num_failures = 0
        self._config, self._memory_frac = config, memory_frac
        self._num_eager_calls = 0  # of a shape, before it is compiled for
        if config.start not in (AT_ONCE, EAGER_THEN_COMPILE):
            self._num_eager_calls = int(config.start.removeprefix("after:"))
        self._call: Hashable = None  # the shapes of the call that runs
        self._num_calls: Counter[Hashable] = Counter()  # by shapes
        self._num_uncompiled: Counter[str] = Counter()  # calls, by setting
        self._uncompiled_by: dict[Hashable, str | None] = {}  # by shapes: the setting of the last call
        self._failure = ""  # the last one

    @property
    def in_effect(self) -> list[str]:
        """The settings that can let a call run uncompiled."""
        config = self._config
        is_set = {
            START: config.start != AT_ONCE,
            MIN_BATCH_SIZE: config.min_batch_size is not None,
            MAX_MEMORY_FRAC: config.max_memory_frac is not None,
            ON_ERROR: config.on_error == "eager",
        }
        return [setting for setting in is_set if is_set[setting]]

    def choose(self, batch: tuple[Any, ...], is_training: bool) -> str | None:
        """The setting by which a call is not compiled for; None if it may be."""
        config = self._config
        tensors = tensors_of(batch)
        self._call = (is_training, *[tensor.shape for tensor in tensors])
        if config.min_batch_size is not None and tensors[0].shape[0] < config.min_batch_size:
            return MIN_BATCH_SIZE
        if self._call in self._uncompiled_by and self._uncompiled_by[self._call] is None:
            return None
        if self._num_calls[self._call] < self._num_eager_calls:
            return START
        if config.max_memory_frac is not None and self._memory_frac(tensors[0].device) > config.max_memory_frac:
            return MAX_MEMORY_FRAC
        return None

    def count(self, setting: str | None) -> None:
        """Count the call that was chosen for. `setting` let it run uncompiled; None: it ran compiled."""
        self._num_calls[self._call] += 1
        self._uncompiled_by[self._call] = setting
        if setting is not None:
            self._num_uncompiled[setting] += 1

    def forget_compiled(self) -> None:
        """Variants were dropped: any call may need a compile."""
        self._uncompiled_by = {call: setting for call, setting in self._uncompiled_by.items() if setting is not None}

    def fail(self, failure: str) -> bool:
        """Note that the compile for a call failed. Whether it was the last failure that `compile.max_failures` lets."""
        self.num_failures += 1
        self._failure = failure
        return self.num_failures >= self._config.max_failures

    def facts(self) -> list[Policy]:
        """The policies in effect, with their calls so far."""
        total = self._num_calls.total()
        policies = []
        for setting in self.in_effect:
            num_uncompiled = self._num_uncompiled[setting]
            policies.append(Policy(setting, num_uncompiled, num_uncompiled / max(total, 1)))
        return policies

    def unsettled(self) -> str | None:
        """Why calls still run uncompiled that this run might have compiled; None if there are none. Small batches are
        left out: `compile.min_batch_size` itself names them."""
        num_shapes = Counter(self._uncompiled_by.values())
        reasons = []
        for setting in (START, MAX_MEMORY_FRAC, ON_ERROR):
            if num_shapes[setting]:
                value = getattr(self._config, setting.removeprefix("compile."))
                reasons.append(f"{setting} = {value}: {num_shapes[setting]} of {len(self._num_calls)}")
        if not reasons:
            return None
        text = f"shapes whose last call ran uncompiled, by {', '.join(reasons)}"
        return f"{text} ({self._failure})" if self._failure else text
