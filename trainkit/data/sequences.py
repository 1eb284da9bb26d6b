"""Sequences of tokens with classes: made of texts, kept in files, padded batch by batch."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset

from trainkit.data.cache import load_array
from trainkit.data.shapes import Padding
from trainkit.inputs import Batch

PAD, CLS, SEP = range(3)  # before the tokens of BPE, so that no text can contain one of them
NUM_SPECIAL = 3


class Sequences(Dataset[Any]):
    """Sequences of different lengths in memory-mapped files. A batch is filled up with PAD as `padding` says.

    Inputs are the tokens int64 [B, T], or with `masked` a dict of `input_ids` and `attention_mask`, which is 0 for PAD.
    """

    def __init__(self, folder: Path, split: str, padding: Padding, masked: bool = False):
        self.tokens = load_array(folder / f"{split}-tokens.npy")
        self.starts = np.array(load_array(folder / f"{split}-starts.npy"))
        self.targets = np.array(load_array(folder / f"{split}-targets.npy"))
        self.padding = padding
        self.masked = masked

    def __len__(self) -> int:
        return len(self.targets)

    def __getitems__(self, indices: Sequence[int]) -> Batch:
        sequences = [self.tokens[self.starts[n] : self.starts[n + 1]] for n in indices]
        length = self.padding.padded(max(len(sequence) for sequence in sequences))
        tokens = np.full((len(sequences), length), PAD, dtype=np.int64)
        for row, sequence in zip(tokens, sequences, strict=True):
            row[: len(sequence)] = sequence
        input_ids, targets = torch.from_numpy(tokens), torch.from_numpy(self.targets[list(indices)])
        if not self.masked:
            return input_ids, targets
        return {"input_ids": input_ids, "attention_mask": (input_ids != PAD).long()}, targets


def save_sequences(
    folder: Path, split: str, sequences: Sequence[np.ndarray], targets: Sequence[int], dtype: type[np.integer]
) -> None:
    """Write the files that Sequences reads."""
    no_tokens = np.empty(0, dtype=np.int64)
    tokens = np.concatenate([no_tokens, *sequences]).astype(dtype)
    lengths = [0]
    for sequence in sequences:
        lengths.append(len(sequence))
    np.save(folder / f"{split}-tokens.npy", tokens)
    np.save(folder / f"{split}-starts.npy", np.cumsum(lengths))
    np.save(folder / f"{split}-targets.npy", np.array(targets, np.int64))


def join_texts(texts: Sequence[np.ndarray], seq_len: int) -> np.ndarray:
    """CLS and the tokens of the texts with SEP between them, int64, cut to at most seq_len tokens."""
    lengths = cut_lengths([len(text) for text in texts], seq_len - len(texts))
    pieces: list[np.ndarray] = []
    for place, (text, length) in enumerate(zip(texts, lengths, strict=True)):
        start = CLS if place == 0 else SEP
        pieces.append(np.array([start], dtype=np.int64))
        pieces.append(text[:length] + NUM_SPECIAL)
    return np.concatenate(pieces)


def cut_lengths(lengths: Sequence[int], room: int) -> list[int]:
    """The lengths after the longest is shortened, again and again, until their sum is at most `room`."""
    cut = list(lengths)
    while sum(cut) > room:
        excess = sum(cut) - room
        longest = max(cut)
        place = cut.index(longest)
        second = max(cut[:place] + cut[place + 1 :], default=0)
        cut[place] -= min(excess, max(longest - second, 1))
    return cut
