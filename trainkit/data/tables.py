"""Texts with classes, as sequences of tokens that are padded batch by batch."""

import json
from collections.abc import Collection, Sequence
from functools import cached_property, partial
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from tokenizers import ByteLevelBPETokenizer

from trainkit.config.errors import ConfigError, refuse
from trainkit.data import bpe
from trainkit.data.cache import cached_folder
from trainkit.data.location import find_train_and_val, locations
from trainkit.data.module import DataModule, contradictions, token_complaints, val_fraction_complaints
from trainkit.data.row_source import TABLE_WAY_OUT, RowSource, find_row_source, table_path_complaints
from trainkit.data.rows import Columns, Rows
from trainkit.data.sequences import NUM_SPECIAL, PAD, Sequences, join_texts, save_sequences
from trainkit.data.shapes import Padding, padding_complaints
from trainkit.formatting import short

LISTED_CLASSES = 10  # in an error
READING = 1  # part of a cache's key; raise it when the same table is made into other sequences
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
    """Sequences int64 [B, T], T <= seq_len, with classes [B]; `classes.json` in the cache lists the classes' names.

    `path` is a csv, tsv, json, jsonl or parquet file, a folder with such files for training (train*) and validation
    (validation*, val*, valid*, dev*, or else test*), or the name of a data set of the hub (of its `subset`, if it has
    several). `val_path` is another one to validate on; without either the seed picks `val_fraction` of the rows.
    A csv without a header line has the given `columns`. Its fields are separated by `delimiter` (None: a comma in
    .csv, else a tab); between tabs a quote is a character like any other. Labels are whole numbers or words. The
    classes are the training's labels, sorted, or those that the hub declares.

    A sequence is token 1 and the tokens of the text; the texts of several columns are joined by token 2, and the
    longest is cut at its end until all are seq_len long. Token 0 fills up a batch as `padding` says (Padding). The
    other tokens are byte-level BPE, learnt from the training texts alone; vocab_size counts all of them. Everything is
    encoded once, into memory-mapped files in `cache_dir`, under a hash of everything that decides them; several
    processes may do so at once. Raises ConfigError naming file and line of a row without text or label, or with a
    label that no training row has, and for settings that cannot be used.
    """

    train_set: Sequences
    val_set: Sequences

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
        self.train_location, self.val_location = locations(path, val_path, TABLE_WAY_OUT)
        self.subset = subset
        self.val_fraction = val_fraction
        if isinstance(buckets, tuple):
            buckets = list(buckets)  # errors show it as it is typed
        self.padding = Padding(padding, buckets, seq_len)
        self.cache_dir = Path(cache_dir).expanduser()
        names = tuple(columns) if columns else None
        text_columns = (text_column,) if isinstance(text_column, str) else tuple(text_column)
        self.columns = Columns(text_columns, label_column, names, delimiter)
        refuse(_table_complaints(self))

    def prepare_data(self) -> None:
        """Fill the cache if this table has not been encoded before."""
        assert self.cache_folder

    def setup(self, stage: str) -> None:
        masked = self.inputs == "tokens_and_mask"
        self.train_set = Sequences(self.cache_folder, "train", self.padding, masked)
        self.val_set = Sequences(self.cache_folder, "val", self.padding, masked)

    def possible_sizes(self) -> dict[int, Collection[int]]:
        return super().possible_sizes() | {1: self.padding.lengths}

    @cached_property
    def cache_folder(self) -> Path:
        """The folder of this table's sequences, made on first use."""
        find = partial(find_row_source, subset=self.subset, columns=self.columns, cache_dir=self.cache_dir)
        train, val = find_train_and_val(self.train_location, self.val_location, find)
        val_fingerprint = val.fingerprint if val else (self.val_fraction, self.seed)
        fingerprints = train.fingerprint, val_fingerprint
        made_from = READING, bpe.VERSION, self.columns, sorted(self.sizes.items()), fingerprints
        return cached_folder(self.cache_dir, made_from, partial(self._encode_into, train, val))

    def _encode_into(self, train: RowSource, val: RowSource | None, folder: Path) -> None:
        with TemporaryDirectory(dir=folder) as scratch:
            train_rows = train.read(Path(scratch))
            classes = self._check_classes(train_rows)
            if val is not None:
                val_rows = val.read(Path(scratch))
                _check_labels(val, val_rows, classes)
            else:
                train_rows, val_rows = train_rows.split(self.val_fraction, self.seed)
        (folder / "classes.json").write_text(json.dumps(classes))
        train_texts = chain.from_iterable(train_rows.texts)
        tokenizer = bpe.learn(train_texts, self.sizes["vocab_size"] - NUM_SPECIAL)
        tokenizer.save(str(folder / "tokenizer.json"))
        dtype = bpe.dtype(self.sizes["vocab_size"])
        for split, rows in (("train", train_rows), ("val", val_rows)):
            sequences = _encode_rows(tokenizer, rows, self.sizes["seq_len"])
            targets = [classes.index(label) for label in rows.labels]
            save_sequences(folder, split, sequences, targets, dtype)

    def _check_classes(self, rows: Rows) -> list[str]:
        """The names of the classes. Raises ConfigError if their number is not the declared one."""
        classes, num_declared = rows.classes, self.sizes["num_classes"]
        if len(classes) == num_declared:
            return classes
        surplus = ""
        if len(rows.first_rows) > num_declared:
            label = list(rows.first_rows)[num_declared]
            surplus = f"; {short(label)} first in {rows.first_rows[label]}"
        raise ConfigError(
            f"data.num_classes = {num_declared}: {self.train_location.path} has {len(classes)} "
            f"({_listed(classes)}{surplus}); "
            f"mend the labels, or say data.num_classes={len(classes)}"
        )


class Glue(Table):
    """A task of GLUE (Wang et al. 2018, https://arxiv.org/abs/1804.07461) from the hub; otherwise like Table.

    MNLI validates on the matched half. Raises ConfigError for a task that has no classes.
    """

    def __init__(self, *, task: str, **settings: Any):
        if task not in TASKS:
            raise ConfigError(f"data.task = {task}: expected one of {', '.join(TASKS)}")
        super().__init__(subset=task, text_column=TASKS[task], **settings)


def _encode_rows(tokenizer: ByteLevelBPETokenizer, rows: Rows, seq_len: int) -> list[np.ndarray]:
    columns = zip(*rows.texts, strict=True)
    encoded_columns = [bpe.encode(tokenizer, column) for column in columns]
    return [join_texts(texts, seq_len) for texts in zip(*encoded_columns, strict=True)]


def _listed(classes: list[str]) -> str:
    """The names of the first classes, as an error shows them."""
    names = [short(name) for name in classes[:LISTED_CLASSES]]
    if len(classes) > LISTED_CLASSES:
        names.append("...")
    return ", ".join(names)


def _check_labels(source: RowSource, rows: Rows, classes: list[str]) -> None:
    """Raise ConfigError with the first row of a label that is none of the classes."""
    for label, first_row in rows.first_rows.items():
        if label not in classes:
            problem = f"{first_row} has the label {short(label)}, and training has {_listed(classes)}"
            raise source.location.error(problem, "fix it or remove it")


def _table_complaints(data: Table) -> list[str]:
    complaints = token_complaints(data) + contradictions(data, pad_token=PAD, next_token=False)
    complaints += table_path_complaints(data.train_location)
    if data.val_location is not None:
        complaints += table_path_complaints(data.val_location)
    else:
        complaints += val_fraction_complaints(data.val_fraction)
    complaints += _column_complaints(data.columns)
    vocab_size, seq_len = data.sizes["vocab_size"], data.sizes["seq_len"]
    if vocab_size < bpe.NUM_BYTES + NUM_SPECIAL:
        complaints.append(
            f"data.vocab_size = {vocab_size}: byte-level BPE starts from the {bpe.NUM_BYTES} bytes, and there are "
            f"{NUM_SPECIAL} tokens more; try data.vocab_size=4096"
        )
    shortest = 2 * len(data.columns.texts)  # a special token and one of its own for each text
    if seq_len < shortest:
        complaints.append(f"data.seq_len = {seq_len}: no room for text; expected at least {shortest}")
    return complaints + padding_complaints(data.padding)


def _column_complaints(columns: Columns) -> list[str]:
    complaints = []
    if not columns.texts:
        complaints.append("data.text_column = []: expected a column's name, or a list of several")
    if columns.label in columns.texts:
        complaints.append(
            f"data.label_column = {columns.label}: is in data.text_column too; name the column of the classes"
        )
    delimiter = columns.delimiter
    if delimiter is not None and len(delimiter) != 1:
        complaints.append(f"data.delimiter = {delimiter}: expected one character; null: a comma in .csv, else a tab")
    return complaints
