"""Random batches that are on the device before training starts: only the network is left to measure."""

import itertools
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import Dataset

from trainkit.config.errors import refuse
from trainkit.data.batches import check_pair, collate, num_samples
from trainkit.data.module import TOKENS, DataModule
from trainkit.data.shapes import (
    ORDERS,
    PADDINGS,
    Padding,
    ShapeSchedule,
    SizeSchedule,
    padding_complaints,
    size_complaints,
)
from trainkit.inputs import Batch, map_tensors


class Synthetic(DataModule):
    """`num_batches` training and `num_val_batches` validation batches an epoch, of the declared shapes, on the device.

    Images are normal, tokens and classes uniform; with next_token the targets are the inputs, one token on. At most
    `num_distinct` different batches of each kind are made, once, from the seed and the rank; an epoch repeats them in
    the same order. Raises ConfigError for settings that contradict each other.

    With `batch_sizes` or `seq_lens` (up to seq_len) training batches change their size by a SizeSchedule in the given
    `order`, alike on all ranks: they are the first samples and tokens of the same batches. `padding` fills lengths up
    with token 0, which an attention mask leaves out (`inputs=tokens_and_mask`), or else the network learns and predicts
    like any other. Validation keeps batch_size and seq_len.
    A network that is only called gets the training batches.

    `example` makes a batch (inputs, targets), or a Dataset whose first samples are one. Then batches have its nesting,
    types and shapes, but for `batch_size`: floating-point numbers are normal, whole numbers uniform from 0 to the
    largest of the example. `inputs` and the sizes of images and tokens have no effect.
    """

    def __init__(
        self,
        *,
        batch_size: int,
        batch_sizes: Sequence[int] | None = None,
        seq_lens: Sequence[int] | None = None,
        order: str = "cycle",
        padding: str = "longest",
        buckets: Sequence[int] = (),
        num_batches: int = 50,
        num_val_batches: int = 5,
        num_distinct: int = 4,
        seed: int = 0,
        example: Callable[[], Any] | None = None,
        inputs: str | None,
        channels: int = 3,
        image_size: int = 32,
        vocab_size: int = 1024,
        seq_len: int = 128,
        next_token: bool = False,
        num_classes: int = 10,
    ):
        super().__init__(
            batch_size=batch_size,
            seed=seed,
            inputs=inputs,
            channels=channels,
            image_size=image_size,
            vocab_size=vocab_size,
            seq_len=seq_len,
            next_token=next_token,
            num_classes=num_classes,
        )
        self.num_batches = num_batches
        self.num_val_batches = num_val_batches
        self.num_distinct = num_distinct
        self.batch_sizes = batch_sizes
        self.seq_lens = seq_lens
        self.order = order
        self.padding = Padding(padding, buckets, seq_len)
        self.example: Batch | None = None
        if example is not None:
            self.example = _example_batch(example())
            self.sizes = {"seq_len": seq_len, "next_token": False}
        refuse(_number_complaints(self) + _target_complaints(self) + _schedule_complaints(self))

    @property
    def schedule(self) -> ShapeSchedule:
        """The shapes of training batches; constant ones if no sizes are set."""
        batch_sizes = self.batch_sizes or [self.batch_size]
        seq_lens = self.seq_lens or [self.sizes["seq_len"]]
        return ShapeSchedule(
            SizeSchedule("batch_size", batch_sizes, self.order, self.seed),
            SizeSchedule("seq_len", seq_lens, self.order, self.seed),
            self.padding,
        )

    def setup(self, stage: str) -> None:
        generator = torch.Generator(self.device).manual_seed(self.seed + self.rank)
        schedule = self.schedule
        batches = self._distinct_batches(max(schedule.batch_sizes.sizes), self.num_batches, generator)
        self.train_batches: RepeatedBatches
        if self.batch_sizes or self.seq_lens:
            self.train_batches = ResizedBatches(batches, self.num_batches, schedule)
        else:
            self.train_batches = RepeatedBatches(batches, self.num_batches)
        if stage != "predict":
            val_batches = self._distinct_batches(self.batch_size, self.num_val_batches, generator)
            self.val_batches = RepeatedBatches(val_batches, self.num_val_batches)

    def train_dataloader(self) -> "RepeatedBatches":
        return self.train_batches

    def val_dataloader(self) -> "RepeatedBatches":
        return self.val_batches

    def forward_dataloader(self) -> "RepeatedBatches":
        return self.train_batches

    def sample(self) -> Batch:
        """Two fresh samples in the declared shapes, on the CPU and without a trainer."""
        return self._random_batch(2, torch.Generator().manual_seed(self.seed))

    def possible_sizes(self) -> dict[int, Collection[int]]:
        schedule = self.schedule
        sizes: dict[int, Collection[int]] = {}
        if self.example is None:
            sizes = super().possible_sizes()
        batch_sizes = set(schedule.batch_sizes.possible_sizes)
        seq_lens = schedule.possible_lengths
        if self.num_val_batches > 0:
            batch_sizes.add(self.batch_size)
            seq_lens.add(self.sizes["seq_len"])
        sizes[0] = batch_sizes
        if self.inputs in TOKENS and self.example is None:
            sizes[1] = seq_lens
        return sizes

    def unused_sizes(self, limit: int | float) -> list[str]:
        num_used = limit if isinstance(limit, int) else int(limit * self.num_batches)
        if num_used <= 0 or self.order == "random":
            return []
        complaints = []
        for setting, schedule in (
            ("data.batch_sizes", self.schedule.batch_sizes),
            ("data.seq_lens", self.schedule.seq_lens),
        ):
            used_sizes = schedule.epoch_sizes(0, self.num_batches)[:num_used]
            unused_sizes = sorted(set(schedule.sizes).difference(used_sizes))
            if unused_sizes:
                complaints.append(
                    f"{setting} = {list(schedule.sizes)}: of the {self.num_batches} batches of an epoch {num_used} are "
                    f"taken, none of them of {', '.join(map(str, unused_sizes))} (data.order={self.order})"
                )
        return complaints

    def _distinct_batches(self, batch_size: int, length: int, generator: torch.Generator) -> list[Batch]:
        return [self._random_batch(batch_size, generator) for _ in range(min(self.num_distinct, length))]

    def _random_batch(self, batch_size: int, generator: torch.Generator) -> Batch:
        if self.example is not None:
            inputs, targets = map_tensors(
                partial(_random_like, batch_size=batch_size, generator=generator), self.example
            )
            return inputs, targets
        sizes = self.sizes
        device = generator.device
        targets = torch.randint(sizes["num_classes"], (batch_size,), generator=generator, device=device)
        if self.inputs == "images":
            shape = (batch_size, sizes["channels"], sizes["image_size"], sizes["image_size"])
            return torch.randn(shape, generator=generator, device=device), targets
        shape_of_tokens = (batch_size, sizes["seq_len"] + 1)  # [B, T + 1]
        tokens = torch.randint(sizes["vocab_size"], shape_of_tokens, generator=generator, device=device)
        if sizes["next_token"]:
            targets = tokens[:, 1:].contiguous()
        input_ids = tokens[:, :-1].contiguous()
        if self.inputs == "tokens":
            return input_ids, targets
        inputs = {"input_ids": input_ids}
        if self.padding.kind != "longest":
            inputs["attention_mask"] = torch.ones_like(input_ids)
        return inputs, targets


def _example_batch(example: Any) -> Batch:
    if isinstance(example, Dataset):
        example = collate([example[number] for number in range(min(8, num_samples(example)))])
    check_pair(example, "data.example")
    inputs, targets = example
    return inputs, targets


def _random_like(tensor: Tensor, batch_size: int, generator: torch.Generator) -> Tensor:
    """Random numbers of the type and shape of a tensor [B, ...], for another B."""
    shape, device = (batch_size, *tensor.shape[1:]), generator.device
    if tensor.is_floating_point():
        return torch.randn(shape, generator=generator, device=device, dtype=tensor.dtype)
    largest = max(int(tensor.max()), 0)
    numbers = torch.randint(largest + 1, shape, generator=generator, device=device)
    return numbers.to(tensor.dtype)


class RepeatedBatches:
    """Goes round the given batches, `length` of them an epoch; each iterator starts at the first."""

    def __init__(self, batches: list[Batch], length: int):
        self.batches = batches
        self.length = length
        self.num_skipped = 0

    def skip(self, num_batches: int) -> None:
        """Have the next iterator begin behind so many batches."""
        self.num_skipped = num_batches

    def __len__(self) -> int:
        return self.length

    def __iter__(self) -> Iterator[Batch]:
        num_skipped, self.num_skipped = self.num_skipped, 0
        return itertools.islice(self.epoch_batches(), num_skipped, None)

    def epoch_batches(self) -> Iterator[Batch]:
        return itertools.islice(itertools.cycle(self.batches), self.length)


class ResizedBatches(RepeatedBatches):
    """Goes round the given batches and cuts each to the size and length that the schedule has for the epoch."""

    def __init__(self, batches: list[Batch], length: int, schedule: ShapeSchedule):
        super().__init__(batches, length)
        self.schedule = schedule
        self.epoch = 0
        self.sampler = self  # Lightning calls set_epoch of a loader's sampler

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def epoch_batches(self) -> Iterator[Batch]:
        # A generator: the epoch counts that is set when the first batch is taken.
        batch_sizes = self.schedule.batch_sizes.epoch_sizes(self.epoch, self.length)
        seq_lens = self.schedule.seq_lens.epoch_sizes(self.epoch, self.length)
        for (inputs, targets), batch_size, seq_len in zip(super().epoch_batches(), batch_sizes, seq_lens, strict=True):
            resize = partial(self._resized, batch_size=batch_size, seq_len=seq_len)
            yield map_tensors(resize, inputs), map_tensors(resize, targets)

    def _resized(self, tensor: Tensor, batch_size: int, seq_len: int) -> Tensor:
        """Tokens or their mask [B, T] -> [batch_size, padded length], 0 behind the first seq_len; images and classes
        [batch_size, ...]."""
        tensor = tensor[:batch_size]
        if tensor.ndim != 2:
            return tensor
        padded = tensor.new_zeros(len(tensor), self.schedule.padding.padded(seq_len))
        padded[:, :seq_len] = tensor[:, :seq_len]
        return padded


def _number_complaints(data: Synthetic) -> list[str]:
    complaints = []
    kinds = ("images", *TOKENS)
    if data.inputs not in kinds and data.example is None:
        complaints.append(f"data.inputs = {data.inputs}: expected one of {', '.join(kinds)}; leave it to the model")
    for name, number in (("num_batches", data.num_batches), ("num_distinct", data.num_distinct)):
        if number < 1:
            complaints.append(f"data.{name} = {number}: expected 1 or more; try data.{name}=4")
    if data.num_val_batches < 0:
        complaints.append(f"data.num_val_batches = {data.num_val_batches}: expected 0 or more; try 5")
    return complaints


def _target_complaints(data: Synthetic) -> list[str]:
    if not data.sizes["next_token"]:
        return []
    num_classes, vocab_size = data.sizes["num_classes"], data.sizes["vocab_size"]
    if data.inputs == "images":
        return ["data.next_token = True: images have no next token; choose a model that takes tokens"]
    if num_classes == vocab_size:
        return []
    return [
        f"data.num_classes = {num_classes}: the next token is one of data.vocab_size = {vocab_size}; "
        f"say data.num_classes={vocab_size}"
    ]


def _schedule_complaints(data: Synthetic) -> list[str]:
    seq_len = data.sizes["seq_len"]
    complaints = size_complaints("data.batch_sizes", data.batch_sizes, data.order, data.num_batches)
    complaints += size_complaints("data.seq_lens", data.seq_lens, data.order, data.num_batches, seq_len)
    if data.order not in ORDERS:
        complaints.append(f"data.order = {data.order}: expected one of {', '.join(ORDERS)}")
    elif data.order != "cycle" and data.batch_sizes is None and data.seq_lens is None:
        complaints.append(f"data.order = {data.order}: there are no sizes to order; try data.batch_sizes=[8,16]")
    padding = data.padding.kind
    if padding in PADDINGS and padding != "longest" and data.seq_lens is None:
        complaints.append(f"data.padding = {padding}: all are of one length; set data.seq_lens with it")
    if data.inputs in TOKENS and data.example is None:
        return complaints + padding_complaints(data.padding)
    if data.seq_lens is not None:
        kind = "images have" if data.example is None else "an example has"
        complaints.append(f"data.seq_lens = {data.seq_lens}: {kind} no length; use data.batch_sizes")
    return complaints
