"""Sizes that change from batch to batch: of what a compiled network meets."""

import random
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

ORDERS = ("list", "cycle", "random")
PADDINGS = ("longest", "buckets", "fixed")


@dataclass(frozen=True)
class Schedule:
    """The size of each batch of an epoch, a function of the seed and the epoch alone.

    list: the sizes one after another, each for an equal share of the epoch; cycle: by turns; random: any whole number
    from the smallest to the largest, each as likely.
    """

    name: str  # of what it is the size of: two schedules of one seed draw different numbers
    sizes: Sequence[int]
    order: str
    seed: int

    def possible(self) -> Sequence[int]:
        """The sizes that may come."""
        return range(min(self.sizes), max(self.sizes) + 1) if self.order == "random" else self.sizes

    def of_epoch(self, epoch: int, num_batches: int) -> list[int]:
        if self.order == "random":
            drawn = random.Random(f"{self.name} {self.seed} {epoch}")
            return [drawn.randint(min(self.sizes), max(self.sizes)) for _ in range(num_batches)]
        count = len(self.sizes)
        places = (k % count if self.order == "cycle" else k * count // num_batches for k in range(num_batches))
        return [self.sizes[place] for place in places]


def padded(length: int, padding: str, buckets: Sequence[int], longest: int) -> int:
    """The length that a batch is filled up to: its own (longest), the smallest bucket that holds it or else `longest`
    (buckets), or always `longest` (fixed)."""
    if padding == "longest":
        return length
    lengths = [*(buckets if padding == "buckets" else ()), longest]
    return lengths[bisect_left(lengths, length)]


def size_complaints(setting: str, sizes: object, order: str, num_batches: int, most: int | None = None) -> list[str]:
    """What is wrong with the sizes of a schedule, of `num_batches` an epoch; None is none."""
    limit = "" if most is None else f" and at most {most}"
    whole = isinstance(sizes, Sequence) and all(type(size) is int and 1 <= size <= (most or size) for size in sizes)
    if sizes is not None and not (whole and sizes and not isinstance(sizes, str)):
        return [f"{setting} = {sizes}: expected a list of whole numbers of at least 1{limit}; try {setting}=[8,16]"]
    if order == "random" and isinstance(sizes, Sequence) and min(sizes) == max(sizes):
        return [f"{setting} = {sizes}: data.order=random draws between two of them; try {setting}=[8,16]"]
    if order != "random" and isinstance(sizes, Sequence) and 0 < num_batches < len(sizes):
        return [
            f"{setting} = {sizes}: {len(sizes)} sizes for data.num_batches = {num_batches}, some would never come; "
            "give fewer sizes or more batches"
        ]
    return []


def bucket_complaints(padding: str, buckets: object, seq_len: int) -> list[str]:
    """What is wrong with `data.padding` and `data.buckets`."""
    if padding not in PADDINGS:
        return [f"data.padding = {padding}: expected one of {', '.join(PADDINGS)}"]
    if isinstance(buckets, Sequence) and not isinstance(buckets, str):
        rising = all(isinstance(length, int) for length in buckets) and sorted({*buckets}) == [*buckets]
        if padding != "buckets" or (buckets and rising and buckets[0] > 0 and buckets[-1] <= seq_len):
            return []
    return [
        f"data.buckets = {buckets}: expected rising lengths up to data.seq_len = {seq_len}; "
        f"try data.buckets=[{seq_len // 4},{seq_len // 2}]"
    ]
