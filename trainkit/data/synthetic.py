"""Random batches that lie on the device before training starts: what is left to measure is the network."""

import itertools
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

import torch

from trainkit.config.errors import ConfigError
from trainkit.data.module import Batch, DataModule
from trainkit.data.schedule import ORDERS, PADDINGS, Schedule, bucket_complaints, padded, size_complaints


class Synthetic(DataModule):
    """`num_batches` training and `num_val_batches` validation batches an epoch, of the declared shapes, on the device.

    Images are normal, tokens and classes uniform; with next_token the targets are the inputs, one token on. At most
    `num_distinct` different batches of each kind are made, once, from the seed and the rank; an epoch goes round
    them in the same order. There is no DataLoader and no copy. ConfigError for settings that contradict each other.

    With `batch_sizes` or `seq_lens` (up to seq_len) training batches change their size by a Schedule in the given
    `order`, on all ranks alike: the first samples and tokens of the same batches. Lengths are filled up with token 0 as
    `padding` says (schedule.padded); tokens are learnt and predicted there like any other. Validation keeps batch_size
    and seq_len; forward alone is of training batches.
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
        inputs: str,
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
        self.num_batches, self.num_val_batches, self.num_distinct = num_batches, num_val_batches, num_distinct
        self.batch_sizes, self.seq_lens, self.order = batch_sizes, seq_lens, order
        self.padding, self.buckets = padding, buckets
        if complaints := [*self._complaints(), *self._schedule_complaints()]:
            raise ConfigError(*complaints)

    def setup(self, stage: str) -> None:
        generator = torch.Generator(self.device).manual_seed(self.seed + self.rank)
        varies = self.batch_sizes or self.seq_lens
        self.train_batches = self._varying(generator) if varies else self._batches(self.num_batches, generator)
        if stage != "predict":  # forward alone, which is of training batches
            self.val_batches = self._batches(self.num_val_batches, generator)

    def train_dataloader(self) -> "Cycle | Varying":
        return self.train_batches

    def val_dataloader(self) -> "Cycle":
        return self.val_batches

    def forward_dataloader(self) -> "Cycle | Varying":
        return self.train_batches

    def sample(self) -> Batch:
        """Two fresh samples in the declared shapes, on the CPU and without a trainer."""
        return self._batch(2, torch.Generator().manual_seed(self.seed))

    def coming_sizes(self) -> dict[int, Collection[int]]:
        validates = self.num_val_batches > 0
        sizes, lengths = self._schedules()
        found = {0: {*sizes.possible(), *[self.batch_size] * validates}}
        if self.inputs == "tokens":
            longest = self.sizes["seq_len"]
            found[1] = {*map(self._fill, lengths.possible()), *[longest] * validates}
        return super().coming_sizes() | found

    def never_coming(self, limit: int | float) -> list[str]:
        taken = limit if isinstance(limit, int) else int(limit * self.num_batches)
        complaints = []
        for name, schedule in zip(("data.batch_sizes", "data.seq_lens"), self._schedules(), strict=True):
            missing = sorted({*schedule.sizes}.difference(schedule.of_epoch(0, self.num_batches)[:taken]))
            if taken > 0 and missing and self.order != "random":
                complaints.append(
                    f"{name} = {list(schedule.sizes)}: of the {self.num_batches} batches of an epoch {taken} are "
                    f"taken, none of them of {', '.join(map(str, missing))} (data.order={self.order})"
                )
        return complaints

    def _batches(self, length: int, generator: torch.Generator) -> "Cycle":
        num_distinct = min(self.num_distinct, length)
        return Cycle([self._batch(self.batch_size, generator) for _ in range(num_distinct)], length)

    def _varying(self, generator: torch.Generator) -> "Varying":
        sizes, lengths = self._schedules()
        whole = [self._batch(max(sizes.sizes), generator) for _ in range(min(self.num_distinct, self.num_batches))]
        return Varying(whole, self.num_batches, sizes, lengths, self._fill)

    def _schedules(self) -> tuple[Schedule, Schedule]:
        """Of batch sizes and of lengths before they are filled up."""
        sizes, lengths = self.batch_sizes or [self.batch_size], self.seq_lens or [self.sizes["seq_len"]]
        return (
            Schedule("batch_size", sizes, self.order, self.seed),
            Schedule("seq_len", lengths, self.order, self.seed),
        )

    def _fill(self, length: int) -> int:
        return padded(length, self.padding, self.buckets, self.sizes["seq_len"])

    def _batch(self, batch_size: int, generator: torch.Generator) -> Batch:
        sizes = self.sizes
        random: dict[str, Any] = {"generator": generator, "device": generator.device}
        targets = torch.randint(sizes["num_classes"], (batch_size,), **random)
        if self.inputs == "images":
            side = sizes["image_size"]
            return torch.randn(batch_size, sizes["channels"], side, side, **random), targets
        tokens = torch.randint(sizes["vocab_size"], (batch_size, sizes["seq_len"] + 1), **random)  # [B, T + 1]
        inputs = tokens[:, :-1].contiguous()
        return inputs, tokens[:, 1:].contiguous() if sizes["next_token"] else targets

    def _complaints(self) -> list[str]:
        complaints, sizes = [], self.sizes
        if self.inputs not in ("images", "tokens"):
            complaints.append(f"data.inputs = {self.inputs}: expected images or tokens; leave it to the model")
        for name in ("num_batches", "num_distinct"):
            if getattr(self, name) < 1:
                complaints.append(f"data.{name} = {getattr(self, name)}: expected 1 or more; try data.{name}=4")
        if self.num_val_batches < 0:
            complaints.append(f"data.num_val_batches = {self.num_val_batches}: expected 0 or more; try 5")
        if sizes["next_token"] and self.inputs == "images":
            complaints.append("data.next_token = True: images have no next token; choose a model that takes tokens")
        elif sizes["next_token"] and sizes["num_classes"] != sizes["vocab_size"]:
            complaints.append(
                f"data.num_classes = {sizes['num_classes']}: the next token is one of data.vocab_size = "
                f"{sizes['vocab_size']}; say data.num_classes={sizes['vocab_size']}"
            )
        return complaints

    def _schedule_complaints(self) -> list[str]:
        seq_len, tokens = self.sizes["seq_len"], self.inputs == "tokens"
        complaints = size_complaints("data.batch_sizes", self.batch_sizes, self.order, self.num_batches)
        complaints += size_complaints("data.seq_lens", self.seq_lens, self.order, self.num_batches, seq_len)
        if self.order not in ORDERS:
            complaints.append(f"data.order = {self.order}: expected one of {', '.join(ORDERS)}")
        elif self.order != "cycle" and self.batch_sizes is None and self.seq_lens is None:
            complaints.append(f"data.order = {self.order}: there are no sizes to order; try data.batch_sizes=[8,16]")
        if self.padding in PADDINGS and self.padding != "longest" and self.seq_lens is None:
            complaints.append(f"data.padding = {self.padding}: all are of one length; set data.seq_lens with it")
        if self.seq_lens is not None and not tokens:
            complaints.append(f"data.seq_lens = {self.seq_lens}: images have no length; use data.batch_sizes")
        return complaints + (bucket_complaints(self.padding, self.buckets, seq_len) if tokens else [])


class Varying:
    """Goes round the given batches and gives out the first samples, and of each the first tokens, as many as the
    schedules say of the epoch that was set."""

    def __init__(
        self,
        batches: list[Batch],
        num_batches: int,
        sizes: Schedule,
        lengths: Schedule,
        fill: Callable[[int], int],
    ):
        self.batches, self.num_batches, self.sizes, self.lengths, self.fill = batches, num_batches, sizes, lengths, fill
        self.epoch = 0
        self.sampler = self  # Lightning calls set_epoch of a loader's sampler

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __len__(self) -> int:
        return self.num_batches

    def __iter__(self) -> Iterator[Batch]:
        sizes = self.sizes.of_epoch(self.epoch, self.num_batches)
        lengths = self.lengths.of_epoch(self.epoch, self.num_batches)
        for whole, size, length in zip(itertools.cycle(self.batches), sizes, lengths, strict=False):
            inputs, targets = (tensor[:size] for tensor in whole)
            yield (self._cut(inputs, length), self._cut(targets, length)) if inputs.ndim == 2 else (inputs, targets)

    def _cut(self, tokens: torch.Tensor, length: int) -> torch.Tensor:
        """[B, T] -> [B, fill(length)]; classes [B] as they are."""
        if tokens.ndim == 1:
            return tokens
        filled = tokens.new_zeros(len(tokens), self.fill(length))
        filled[:, :length] = tokens[:, :length]
        return filled


class Cycle:
    """Goes round the given batches until `length` of them were given out; each iterator starts at the first."""

    def __init__(self, batches: list[Batch], length: int):
        self.batches, self.length = batches, length

    def __len__(self) -> int:
        return self.length

    def __iter__(self) -> Iterator[Batch]:
        return itertools.islice(itertools.cycle(self.batches), self.length)
