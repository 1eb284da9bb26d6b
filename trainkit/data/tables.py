"""Texts with classes, as sequences of tokens that are padded batch by batch."""

import json
from bisect import bisect_left
from collections.abc import Collection, Sequence
from functools import cached_property, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from tokenizers import ByteLevelBPETokenizer
from torch.utils.data import Dataset

from trainkit.config.errors import ConfigError
from trainkit.data import bpe
from trainkit.data.cache import array, cached
from trainkit.data.module import Batch, DataModule, is_part
from trainkit.data.rows import REMEDY, Columns, Rows, Source, path_complaints, source
from trainkit.data.schedule import bucket_complaints
from trainkit.data.splits import train_and_val

READING = 1  # raise it when other sequences are made of the same table: older caches are then left alone
PAD, CLS, SEP = range(3)  # before the tokens of BPE, so that no text can hold one of them
NUM_SPECIAL = 3
TASKS = {  # of GLUE, with one class for each text: the columns of text
    "cola": ["sentence"],
    "sst2": ["sentence"],
    "mrpc": ["sentence1", "sentence2"],
    "qqp": ["question1", "question2"],
    "mnli": ["premise", "hypothesis"],
    "qnli": ["question", "sentence"],
    "rte": ["sentence1", "sentence2"],
    "wnli": ["sentence1", "sentence2"],
}


class Table(DataModule):
    """Sequences int64 [B, T], T <= seq_len, with classes [B], whose names `classes.json` in the cache lists.

    `path` is a csv, tsv, json, jsonl or parquet file, a folder with such files for training (train*) and validation
    (validation*, val*, valid*, dev*, or else test*), or the name of a data set of the hub (of its `subset`, where it
    has several). `val_path` is another one to validate on; without either the seed picks `val_fraction` of the rows.
    A csv without a header line has the given `columns`. Its fields are separated by `delimiter` (None: a comma in
    .csv, else a tab); between tabs a quote is a character like any other. Labels are whole numbers or words, and
    classes are the training's labels, sorted, or what the hub declares.

    A sequence is token 1 and the tokens of the text; the texts of several columns are joined by token 2, and cut at
    the end of the longest until all is seq_len long. Token 0 fills up a batch: to its longest sequence (`padding`
    longest), to the smallest of `buckets` and seq_len that holds it (buckets), or to seq_len (fixed). The others,
    vocab_size with these three, are byte-level BPE, learnt from the training texts alone. Everything is encoded once,
    into memory-mapped files in `cache_dir`, under a hash of all that decides them; any number of processes may do so
    at once. ConfigError naming file and line of a row without text or label, or with a label that training has not,
    and for settings that cannot be used.
    """

    train_set: "Sequences"
    val_set: "Sequences"

    def __init__(
        self,
        *,
        path: str | None,
        subset: str | None = None,
        val_path: str | None = None,
        val_fraction: float = 0.1,
        text_column: str | Sequence[str] = "text",
        label_column: str = "label",
        columns: Sequence[str] | None = None,
        delimiter: str | None = None,
        padding: str = "longest",
        buckets: Sequence[int] = (),
        batch_size: int,
        num_workers: int = 0,
        seed: int = 0,
        cache_dir: str = "~/.cache/trainkit",
        inputs: str = "tokens",
        vocab_size: int = 4096,
        seq_len: int = 128,
        pad_token: int = PAD,
        next_token: bool = False,
        num_classes: int = 2,
    ):
        super().__init__(
            batch_size=batch_size,
            num_workers=num_workers,
            seed=seed,
            inputs=inputs,
            vocab_size=vocab_size,
            seq_len=seq_len,
            pad_token=pad_token,
            next_token=next_token,
            num_classes=num_classes,
        )
        self.path, self.val_path = str(path or ""), str(val_path) if val_path else None
        self.subset, self.val_fraction = subset, val_fraction
        self.padding, self.buckets = padding, list(buckets) if isinstance(buckets, tuple) else buckets
        self.cache_dir = Path(cache_dir).expanduser()
        texts = (text_column,) if isinstance(text_column, str) else tuple(text_column)
        self.columns = Columns(texts, label_column, tuple(columns) if columns else None, delimiter)
        if complaints := self._complaints():
            raise ConfigError(*complaints)

    def prepare_data(self) -> None:
        """Fills the cache if this table was not encoded before."""
        assert self._cache

    def setup(self, stage: str) -> None:
        self.train_set, self.val_set = (Sequences(self._cache, split, self._lengths) for split in ("train", "val"))

    def coming_sizes(self) -> dict[int, Collection[int]]:
        return super().coming_sizes() | {1: self._lengths}

    @property
    def _lengths(self) -> Sequence[int]:
        """What a batch may be filled up to."""
        seq_len = self.sizes["seq_len"]
        return {"longest": range(seq_len + 1), "buckets": [*self.buckets, seq_len], "fixed": [seq_len]}[self.padding]

    @cached_property
    def _cache(self) -> Path:
        """The folder of this table's sequences, made at the first look."""
        find = partial(source, subset=self.subset, columns=self.columns, cache_dir=self.cache_dir)
        train, val = train_and_val(self.path, self.val_path, find, REMEDY)
        known_by = train.known_by, val.known_by if val else (self.val_fraction, self.seed)
        made_from = READING, bpe.VERSION, self.columns, sorted(self.sizes.items()), known_by
        return cached(self.cache_dir, made_from, partial(self._encode_into, train, val))

    def _encode_into(self, train: Source, val: Source | None, folder: Path) -> None:
        with TemporaryDirectory(dir=folder) as scratch:
            rows = train.rows(Path(scratch))
            classes = self._classes(train, rows)
            val_rows = val.rows(Path(scratch)) if val else None
        if val is None or val_rows is None:
            rows, val_rows = rows.split(self.val_fraction, self.seed)
        elif unknown := [label for label in val_rows.places if label not in classes]:
            raise ConfigError(
                f"{val.setting} = {val.path}: {val_rows.places[unknown[0]]} has the label {unknown[0]}, and training "
                f"has {', '.join(classes)}; mend it or remove it"
            )
        texts = (text for texts in rows.texts for text in texts)
        tokenizer = bpe.learn(texts, self.sizes["vocab_size"] - NUM_SPECIAL)
        tokenizer.save(str(folder / "tokenizer.json"))
        (folder / "classes.json").write_text(json.dumps(classes))
        dtype = bpe.dtype(self.sizes["vocab_size"])
        for split, part in (("train", rows), ("val", val_rows)):
            sequences = [np.empty(0, dtype=np.int64), *self._sequences(tokenizer, part)]
            np.save(folder / f"{split}-tokens.npy", np.concatenate(sequences).astype(dtype))
            np.save(folder / f"{split}-starts.npy", np.cumsum([len(sequence) for sequence in sequences]))
            np.save(
                folder / f"{split}-targets.npy", np.array([classes.index(label) for label in part.labels], np.int64)
            )

    def _classes(self, train: Source, rows: Rows) -> list[str]:
        """The names of the classes. ConfigError where not so many are declared, with the place of the surplus one."""
        classes, declared = rows.classes, self.sizes["num_classes"]
        if len(classes) != declared:
            surplus = [f"; {label} first in {place}" for label, place in rows.places.items()][declared : declared + 1]
            names = ", ".join(classes[:10]) + (", ..." if len(classes) > 10 else "")
            raise ConfigError(
                f"data.num_classes = {declared}: {train.path} has {len(classes)} ({names}{''.join(surplus)}); "
                f"mend the labels, or say data.num_classes={len(classes)}"
            )
        return classes

    def _sequences(self, tokenizer: ByteLevelBPETokenizer, rows: Rows) -> list[np.ndarray]:
        texts = [bpe.encode(tokenizer, column) for column in zip(*rows.texts, strict=True)]
        return [_sequence(parts, self.sizes["seq_len"]) for parts in zip(*texts, strict=True)]

    def _complaints(self) -> list[str]:
        vocab_size, seq_len = self.sizes["vocab_size"], self.sizes["seq_len"]
        complaints = self.contradictions(inputs="tokens", pad_token=PAD, next_token=False)
        complaints += path_complaints("data.path", self.path)
        if self.val_path is not None:
            complaints += path_complaints("data.val_path", self.val_path)
        elif not is_part(self.val_fraction):
            complaints.append(f"data.val_fraction = {self.val_fraction}: expected a part of the rows; try 0.1")
        if not self.columns.texts:
            complaints.append("data.text_column = []: expected a column's name, or a list of several")
        if self.columns.label in self.columns.texts:
            complaints.append(
                f"data.label_column = {self.columns.label}: is in data.text_column too; name the column of the classes"
            )
        if self.columns.delimiter is not None and len(self.columns.delimiter) != 1:
            complaints.append(
                f"data.delimiter = {self.columns.delimiter}: expected one character; null: a comma in .csv, else a tab"
            )
        if vocab_size < bpe.NUM_BYTES + NUM_SPECIAL:
            complaints.append(
                f"data.vocab_size = {vocab_size}: byte-level BPE starts from the {bpe.NUM_BYTES} bytes, and there are "
                f"{NUM_SPECIAL} tokens more; try data.vocab_size=4096"
            )
        if seq_len < (least := 2 * len(self.columns.texts)):
            complaints.append(f"data.seq_len = {seq_len}: no room for text; expected at least {least}")
        return complaints + bucket_complaints(self.padding, self.buckets, seq_len)


class Glue(Table):
    """A task of GLUE (Wang et al. 2018, https://arxiv.org/abs/1804.07461), as the hub has it; else as a Table.

    MNLI validates on the matched half. ConfigError for a task that has no classes.
    """

    def __init__(self, *, task: str, **settings: Any):
        if task not in TASKS:
            raise ConfigError(f"data.task = {task}: expected one of {', '.join(TASKS)}")
        super().__init__(subset=task, text_column=TASKS[task], **settings)


class Sequences(Dataset):
    """Sequences of different lengths in memory-mapped files, a batch at a time, filled up with PAD to the smallest of
    `lengths` (rising) that holds its longest."""

    def __init__(self, folder: Path, split: str, lengths: Sequence[int]):
        self.tokens = array(folder / f"{split}-tokens.npy")
        self.starts = np.array(array(folder / f"{split}-starts.npy"))
        self.targets = np.array(array(folder / f"{split}-targets.npy"))
        self.lengths = lengths

    def __len__(self) -> int:
        return len(self.targets)

    def __getitems__(self, indices: Sequence[int]) -> Batch:
        rows = [self.tokens[self.starts[n] : self.starts[n + 1]] for n in indices]
        length = self.lengths[bisect_left(self.lengths, max(map(len, rows)))]
        inputs = np.full((len(rows), length), PAD, dtype=np.int64)
        for place, row in enumerate(rows):
            inputs[place, : len(row)] = row
        return torch.from_numpy(inputs), torch.from_numpy(self.targets[list(indices)])


def _sequence(parts: Sequence[np.ndarray], seq_len: int) -> np.ndarray:
    """CLS, and the parts with SEP between them; the longest part loses its end until there are seq_len tokens."""
    room, kept = seq_len - len(parts), [len(part) for part in parts]
    while sum(kept) > room:
        longest, *others = sorted(kept, reverse=True)
        kept[kept.index(longest)] -= min(sum(kept) - room, max(longest - max(others, default=0), 1))
    starts = [CLS, *[SEP] * (len(parts) - 1)]
    return np.concatenate(
        [
            piece
            for start, part, end in zip(starts, parts, kept, strict=True)
            for piece in ([start], part[:end] + NUM_SPECIAL)
        ]
    )
