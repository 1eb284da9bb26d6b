"""Random batches that lie on the device before training starts: what is left to measure is the network."""

import itertools
from collections.abc import Iterator
from typing import Any

import torch

from trainkit.config import ConfigError
from trainkit.data.module import Batch, DataModule


class Synthetic(DataModule):
    """`num_batches` training and `num_val_batches` validation batches an epoch, of the declared shapes, on the device.

    Images are normal, tokens and classes uniform; with next_token the targets are the inputs, one token on. At most
    `num_distinct` different batches of each kind are made, once, from the seed and the rank; an epoch goes round
    them in the same order. There is no DataLoader and no copy. ConfigError for settings that contradict each other.
    """

    def __init__(
        self,
        *,
        batch_size: int,
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
        if complaints := self._complaints():
            raise ConfigError(*complaints)

    def setup(self, stage: str) -> None:
        generator = torch.Generator(self.device).manual_seed(self.seed + self.rank)
        self.train_batches = self._batches(self.num_batches, generator)
        self.val_batches = self._batches(self.num_val_batches, generator)

    def train_dataloader(self) -> "Cycle":
        return self.train_batches

    def val_dataloader(self) -> "Cycle":
        return self.val_batches

    def sample(self) -> Batch:
        """Two fresh samples in the declared shapes, on the CPU and without a trainer."""
        return self._batch(2, torch.Generator().manual_seed(self.seed))

    def _batches(self, length: int, generator: torch.Generator) -> "Cycle":
        num_distinct = min(self.num_distinct, length)
        return Cycle([self._batch(self.batch_size, generator) for _ in range(num_distinct)], length)

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


class Cycle:
    """Goes round the given batches until `length` of them were given out; each iterator starts at the first."""

    def __init__(self, batches: list[Batch], length: int):
        self.batches, self.length = batches, length

    def __len__(self) -> int:
        return self.length

    def __iter__(self) -> Iterator[Batch]:
        return itertools.islice(itertools.cycle(self.batches), self.length)
