"""The sizes of batches: schedules of sizes that change from batch to batch, and padding."""

import random
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

ORDERS = ("list", "cycle", "random")
PADDINGS = ("longest", "buckets", "fixed")


@dataclass(frozen=True)
class SizeSchedule:
    """The size of each batch of an epoch, which depends on the seed and the epoch alone.

    list: the sizes one after another, each for an equal share of the epoch; cycle: in turn; random: any whole number
    from the smallest to the largest, each as likely.
    """

    name: str  # schedules of one seed and different names draw different numbers
    sizes: Sequence[int]
    order: str
    seed: int

    @property
    def possible_sizes(self) -> Sequence[int]:
        if self.order == "random":
            return range(min(self.sizes), max(self.sizes) + 1)
        return self.sizes

    def epoch_sizes(self, epoch: int, num_batches: int) -> list[int]:
        if self.order == "random":
            rng = random.Random(f"{self.name} {self.seed} {epoch}")
            return [rng.randint(min(self.sizes), max(self.sizes)) for _ in range(num_batches)]
        num_sizes = len(self.sizes)
        if self.order == "cycle":
            return [self.sizes[batch % num_sizes] for batch in range(num_batches)]
        return [self.sizes[batch * num_sizes // num_batches] for batch in range(num_batches)]


@dataclass(frozen=True)
class Padding:
    """Maps the length of a batch's longest sequence to the length of the batch.

    longest: the same length; buckets: the smallest bucket that holds it, or else `seq_len`; fixed: `seq_len`.
    """

    kind: str
    buckets: Sequence[int]  # rising
    seq_len: int

    @property
    def lengths(self) -> Sequence[int]:
        """The lengths that a batch may have, rising."""
        if self.kind == "longest":
            return range(self.seq_len + 1)
        if self.kind == "buckets":
            return [*self.buckets, self.seq_len]
        return [self.seq_len]

    def padded(self, length: int) -> int:
        lengths = self.lengths
        return lengths[bisect_left(lengths, length)]


@dataclass(frozen=True)
class ShapeSchedule:
    """The number of samples and the length of each batch. The lengths are those before padding."""

    batch_sizes: SizeSchedule
    seq_lens: SizeSchedule
    padding: Padding

    @property
    def possible_lengths(self) -> set[int]:
        """The lengths that a batch may have after padding."""
        return {self.padding.padded(length) for length in self.seq_lens.possible_sizes}


def size_complaints(setting: str, sizes: object, order: str, num_batches: int, maximum: int | None = None) -> list[str]:
    """Complaints about the sizes of a schedule, which may be of any type; None is no schedule."""
    if sizes is None:
        return []
    if not isinstance(sizes, Sequence) or not _are_sizes(sizes, maximum):
        limit = "" if maximum is None else f" and at most {maximum}"
        return [f"{setting} = {sizes}: expected a list of whole numbers of at least 1{limit}; try {setting}=[8,16]"]
    if order == "random":
        if min(sizes) < max(sizes):
            return []
        return [f"{setting} = {sizes}: data.order=random draws between two of them; try {setting}=[8,16]"]
    if 0 < num_batches < len(sizes):
        return [
            f"{setting} = {sizes}: {len(sizes)} sizes for data.num_batches = {num_batches}, some would never come; "
            "give fewer sizes or more batches"
        ]
    return []


def _are_sizes(sizes: Sequence[object], maximum: int | None) -> bool:
    if not sizes or isinstance(sizes, str):
        return False
    for size in sizes:
        if type(size) is not int or size < 1:
            return False
        if maximum is not None and size > maximum:
            return False
    return True


def padding_complaints(padding: Padding) -> list[str]:
    """Complaints about `data.padding` and `data.buckets`, which may be of any type."""
    if padding.kind not in PADDINGS:
        return [f"data.padding = {padding.kind}: expected one of {', '.join(PADDINGS)}"]
    if _are_buckets(padding):
        return []
    seq_len = padding.seq_len
    return [
        f"data.buckets = {padding.buckets}: expected rising lengths up to data.seq_len = {seq_len}; "
        f"try data.buckets=[{seq_len // 4},{seq_len // 2}]"
    ]


def _are_buckets(padding: Padding) -> bool:
    """Whether the buckets are a list, and of rising lengths up to seq_len if they are used."""
    buckets: object = padding.buckets
    if not isinstance(buckets, Sequence) or isinstance(buckets, str):
        return False
    if padding.kind != "buckets":
        return True
    if not buckets or not all(isinstance(length, int) for length in buckets):
        return False
    rising = sorted(set(buckets)) == list(buckets)
    return rising and buckets[0] > 0 and buckets[-1] <= padding.seq_len
