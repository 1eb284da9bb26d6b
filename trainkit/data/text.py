"""Texts as blocks of tokens, every next token predicted: files here, or a data set of the hub."""

import hashlib
from collections.abc import Callable, Collection
from functools import cached_property, partial
from pathlib import Path
from typing import NamedTuple

import datasets
import numpy as np

from trainkit.config.errors import ConfigError
from trainkit.data import bpe
from trainkit.data.cache import array, cached
from trainkit.data.module import ArrayDataset, DataModule, is_part
from trainkit.data.splits import TRAIN, first, load, on_hub, read_text, readable, train_and_val

REMEDY = "give a text file, a folder of .txt files, or owner/name of the hub"


class Source(NamedTuple):
    """A text that is not read yet."""

    known_by: tuple[str, ...]  # changes with the text
    read: Callable[[], str]


class Text(DataModule):
    """Blocks of seq_len tokens that do not overlap: int64 [B, seq_len], the targets are the inputs one token on.

    `path` and `val_path` are a text file or a folder whose .txt files are read in sorted order, subfolders included;
    or the name of a data set of the hub, whose column `text` is read (of its `subset`, where it has several). Without
    `val_path` the hub's own validation split validates, else the last `val_fraction` of the characters. The tokens are
    byte-level BPE, at most vocab_size of them, learnt from the training text alone. Tokenizer and tokens are made once
    and kept in `cache_dir`, under a hash of all that decides them; any number of processes may do so at once.
    ConfigError for paths, texts and sizes that cannot be used.
    """

    def __init__(
        self,
        *,
        path: str | None,
        subset: str | None = None,
        val_path: str | None = None,
        val_fraction: float = 0.1,
        batch_size: int,
        num_workers: int = 0,
        seed: int = 0,
        cache_dir: str = "~/.cache/trainkit",
        inputs: str = "tokens",
        vocab_size: int = 1024,
        seq_len: int = 128,
        next_token: bool = True,
        num_classes: int | None = None,
    ):
        super().__init__(
            batch_size=batch_size,
            num_workers=num_workers,
            seed=seed,
            inputs=inputs,
            vocab_size=vocab_size,
            seq_len=seq_len,
            next_token=next_token,
            num_classes=vocab_size if num_classes is None else num_classes,
        )
        self.path = str(path or "")
        self.val_path = str(val_path) if val_path else None
        self.subset, self.val_fraction = subset, val_fraction
        self.cache_dir = Path(cache_dir).expanduser()
        if complaints := self._complaints():
            raise ConfigError(*complaints)

    def prepare_data(self) -> None:
        """Fills the cache if this text was not encoded before."""
        assert self._cache

    def setup(self, stage: str) -> None:
        self.train_set = self._blocks("train.npy", "data.path", self.path)
        if self.val_path is not None:
            self.val_set = self._blocks("val.npy", "data.val_path", self.val_path)
        else:
            self.val_set = self._blocks("val.npy", "data.val_fraction", self.val_fraction)

    def coming_sizes(self) -> dict[int, Collection[int]]:
        return super().coming_sizes() | {1: [self.sizes["seq_len"]]}

    @cached_property
    def _cache(self) -> Path:
        """The folder of this text's tokens, made at the first look."""
        train, val = train_and_val(self.path, self.val_path, self._source, REMEDY)
        known_by = train.known_by, val.known_by if val else (self.val_fraction,)
        made_from = bpe.VERSION, self.sizes["vocab_size"], known_by
        return cached(self.cache_dir, made_from, partial(self._encode_into, train, val))

    def _encode_into(self, train_source: Source, val_source: Source | None, folder: Path) -> None:
        train = train_source.read()
        if val_source is None:
            cut = len(train) - round(len(train) * self.val_fraction)
            train, val = train[:cut], train[cut:]
        else:
            val = val_source.read()
        tokenizer = bpe.learn(_lines(train), self.sizes["vocab_size"])
        tokenizer.save(str(folder / "tokenizer.json"))
        dtype = bpe.dtype(self.sizes["vocab_size"])
        for name, text in (("train", train), ("val", val)):
            tokens = np.concatenate([np.empty(0, dtype=np.uint32), *bpe.encode(tokenizer, _lines(text))])
            np.save(folder / f"{name}.npy", tokens.astype(dtype))

    def _source(self, setting: str, path: str, words: tuple[str, ...]) -> Source | None:
        """The text of the first split with one of these names; None if there is none. Files are for training."""
        if not on_hub(path):
            return Source(_digests(path), partial(_read, setting, path)) if TRAIN[0] in words else None
        split = first(load(setting, path, REMEDY, path, self.subset, cache_dir=str(self.cache_dir / "datasets")), words)
        if split is not None and "text" not in split.column_names:
            raise ConfigError(f"{setting} = {path}: has {', '.join(split.column_names)}, but no column text; {REMEDY}")
        return None if split is None else Source((split._fingerprint,), partial(_joined, split))

    def _blocks(self, file: str, setting: str, value: object) -> ArrayDataset:
        tokens, seq_len = array(self._cache / file), self.sizes["seq_len"]
        num_blocks = (len(tokens) - 1) // seq_len
        if num_blocks < 1:
            raise ConfigError(
                f"{setting} = {value}: {len(tokens)} tokens are too few for one block of data.seq_len = {seq_len} "
                "and the token after it; give more text or a smaller data.seq_len"
            )
        end = num_blocks * seq_len
        return ArrayDataset(tokens[:end].reshape(-1, seq_len), tokens[1 : end + 1].reshape(-1, seq_len))

    def _complaints(self) -> list[str]:
        vocab_size, seq_len = self.sizes["vocab_size"], self.sizes["seq_len"]
        complaints = self.contradictions(inputs="tokens", next_token=True, num_classes=vocab_size)
        if seq_len < 1:
            complaints.append(f"data.seq_len = {seq_len}: expected 1 or more; try data.seq_len=128")
        if vocab_size < bpe.NUM_BYTES:
            complaints.append(
                f"data.vocab_size = {vocab_size}: byte-level BPE starts from the {bpe.NUM_BYTES} bytes; "
                "try data.vocab_size=1024"
            )
        complaints += _path_complaints("data.path", self.path)
        if self.val_path is not None:
            complaints += _path_complaints("data.val_path", self.val_path)
        elif not is_part(self.val_fraction):
            complaints.append(f"data.val_fraction = {self.val_fraction}: expected a part of the text; try 0.1")
        return complaints


def _path_complaints(setting: str, path: str) -> list[str]:
    if not path:
        return [f"{setting} = null: no text; {REMEDY}"]
    if on_hub(path):
        return []
    if not Path(path).expanduser().exists():
        return [f"{setting} = {path}: no such file or folder; {REMEDY}"]
    if not _files(path):
        return [f"{setting} = {path}: no .txt file in this folder; {REMEDY}"]
    return readable(setting, path, _files(path), REMEDY)


def _files(path: str) -> list[Path]:
    where = Path(path).expanduser()
    return sorted(file for file in where.rglob("*.txt") if file.is_file()) if where.is_dir() else [where]


def _digests(path: str) -> tuple[str, ...]:
    return tuple(hashlib.sha256(file.read_bytes()).hexdigest() for file in _files(path))


def _read(setting: str, path: str) -> str:
    text = "\n".join(read_text(setting, path, file) for file in _files(path))
    if not text.strip():
        raise ConfigError(f"{setting} = {path}: the text is empty; {REMEDY}")
    return text


def _joined(split: datasets.Dataset) -> str:
    """The rows of a hub's split as lines; those of WikiText bring their ends along, but for the empty ones."""
    return "".join(row if row.endswith("\n") else f"{row}\n" for row in split["text"])


def _lines(text: str) -> list[str]:
    return text.splitlines(keepends=True)
