"""Texts as blocks of tokens, every next token predicted: files here, or a data set of the hub."""

import hashlib
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path

import datasets
import numpy as np
from tokenizers import ByteLevelBPETokenizer

from trainkit.config.errors import ConfigError, refuse
from trainkit.data import bpe
from trainkit.data.batches import ArrayDataset
from trainkit.data.cache import cached_folder, load_array
from trainkit.data.location import (
    TRAIN_NAMES,
    DataLocation,
    find_train_and_val,
    first_split,
    load_splits,
    locations,
    missing_complaints,
    read_text,
    unreadable_complaints,
)
from trainkit.data.module import DataModule, contradictions, token_complaints, val_fraction_complaints

TEXT_WAY_OUT = "give a text file, a folder of .txt files, or owner/name of the hub"


@dataclass(frozen=True)
class TextSource:
    """A text that is not read yet."""

    fingerprint: tuple[str, ...]  # changes with the text
    read: Callable[[], str]


class Text(DataModule):
    """Blocks of seq_len tokens that do not overlap: int64 [B, seq_len]. The targets are the inputs, one token on.

    `path` and `val_path` are a text file; or a folder, whose .txt files are read in sorted order, subfolders included;
    or the name of a data set of the hub, whose column `text` is read (of its `subset`, if it has several). Without
    `val_path` validation has the hub's own validation split, or else the last `val_fraction` of the characters. The
    tokens are byte-level BPE, at most vocab_size of them, learnt from the training text alone. Tokenizer and tokens
    are made once and kept in `cache_dir`, under a hash of everything that decides them; several processes may do so at
    once. With `inputs=tokens_and_mask` the blocks are `input_ids`; they are never padded and have no mask. Raises
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
        if num_classes is None:
            num_classes = vocab_size
        super().__init__(
            batch_size=batch_size,
            num_workers=num_workers,
            seed=seed,
            inputs=inputs,
            vocab_size=vocab_size,
            seq_len=seq_len,
            next_token=next_token,
            num_classes=num_classes,
        )
        self.train_location, self.val_location = locations(path, val_path, TEXT_WAY_OUT)
        self.subset = subset
        self.val_fraction = val_fraction
        self.cache_dir = Path(cache_dir).expanduser()
        refuse(_text_complaints(self))

    def prepare_data(self) -> None:
        """Fill the cache if this text has not been encoded before."""
        assert self.cache_folder

    def setup(self, stage: str) -> None:
        self.train_set = self._blocks("train.npy", "data.path", self.train_location.path)
        if self.val_location is not None:
            self.val_set = self._blocks("val.npy", "data.val_path", self.val_location.path)
        else:
            self.val_set = self._blocks("val.npy", "data.val_fraction", self.val_fraction)

    def possible_sizes(self) -> dict[int, Collection[int]]:
        return super().possible_sizes() | {1: [self.sizes["seq_len"]]}

    @cached_property
    def cache_folder(self) -> Path:
        """The folder of this text's tokens, made on first use."""
        train, val = find_train_and_val(self.train_location, self.val_location, self._find_source)
        val_fingerprint = val.fingerprint if val else (self.val_fraction,)
        made_from = bpe.VERSION, self.sizes["vocab_size"], (train.fingerprint, val_fingerprint)
        return cached_folder(self.cache_dir, made_from, partial(self._encode_into, train, val))

    def _find_source(self, location: DataLocation, names: tuple[str, ...]) -> TextSource | None:
        """The text of the first split with one of these names, None if there is none. Files are for training."""
        if location.is_on_hub:
            return self._find_hub_source(location, names)
        if TRAIN_NAMES[0] not in names:
            return None
        return TextSource(_digests(location), partial(_read_files, location))

    def _find_hub_source(self, location: DataLocation, names: tuple[str, ...]) -> TextSource | None:
        cache_dir = str(self.cache_dir / "datasets")
        split = first_split(load_splits(location, location.path, self.subset, cache_dir=cache_dir), names)
        if split is None:
            return None
        if "text" not in split.column_names:
            raise location.error(f"has {', '.join(split.column_names)}, but no column text")
        return TextSource((split._fingerprint,), partial(_join_rows, split))

    def _encode_into(self, train_source: TextSource, val_source: TextSource | None, folder: Path) -> None:
        train_text = train_source.read()
        if val_source is not None:
            val_text = val_source.read()
        else:
            num_train = len(train_text) - round(len(train_text) * self.val_fraction)
            train_text, val_text = train_text[:num_train], train_text[num_train:]
        tokenizer = bpe.learn(_split_lines(train_text), self.sizes["vocab_size"])
        tokenizer.save(str(folder / "tokenizer.json"))
        dtype = bpe.dtype(self.sizes["vocab_size"])
        for split, text in (("train", train_text), ("val", val_text)):
            np.save(folder / f"{split}.npy", _encode_text(tokenizer, text).astype(dtype))

    def _blocks(self, file: str, setting: str, value: object) -> ArrayDataset:
        """Raises ConfigError about the setting if its text has fewer tokens than one block."""
        tokens = load_array(self.cache_folder / file)
        seq_len = self.sizes["seq_len"]
        num_blocks = (len(tokens) - 1) // seq_len
        if num_blocks < 1:
            raise ConfigError(
                f"{setting} = {value}: {len(tokens)} tokens are too few for one block of data.seq_len = {seq_len} "
                "and the token after it; give more text or a smaller data.seq_len"
            )
        end = num_blocks * seq_len
        blocks, targets = tokens[:end].reshape(-1, seq_len), tokens[1 : end + 1].reshape(-1, seq_len)
        keyword = "input_ids" if self.inputs == "tokens_and_mask" else None
        return ArrayDataset(blocks, targets, keyword)


def _text_complaints(data: Text) -> list[str]:
    vocab_size = data.sizes["vocab_size"]
    complaints = token_complaints(data) + contradictions(data, next_token=True, num_classes=vocab_size)
    if vocab_size < bpe.NUM_BYTES:
        complaints.append(
            f"data.vocab_size = {vocab_size}: byte-level BPE starts from the {bpe.NUM_BYTES} bytes; "
            "try data.vocab_size=1024"
        )
    complaints += _text_path_complaints(data.train_location)
    if data.val_location is not None:
        return complaints + _text_path_complaints(data.val_location)
    return complaints + val_fraction_complaints(data.val_fraction)


def _text_path_complaints(location: DataLocation) -> list[str]:
    complaints = missing_complaints(location, "text")
    if complaints or location.is_on_hub:
        return complaints
    files = _text_files(location)
    if not files:
        return [location.complaint("no .txt file in this folder")]
    return unreadable_complaints(location, files)


def _text_files(location: DataLocation) -> list[Path]:
    path = location.local_path
    if not path.is_dir():
        return [path]
    return sorted(file for file in path.rglob("*.txt") if file.is_file())


def _digests(location: DataLocation) -> tuple[str, ...]:
    return tuple(hashlib.sha256(file.read_bytes()).hexdigest() for file in _text_files(location))


def _read_files(location: DataLocation) -> str:
    text = "\n".join(read_text(location, file) for file in _text_files(location))
    if not text.strip():
        raise location.error("the text is empty")
    return text


def _join_rows(split: datasets.Dataset) -> str:
    """The rows of a hub's split as lines. Those of WikiText end with a newline, except for the empty ones."""
    lines = []
    for row in split["text"]:
        lines.append(row)
        if not row.endswith("\n"):
            lines.append("\n")
    return "".join(lines)


def _split_lines(text: str) -> list[str]:
    return text.splitlines(keepends=True)


def _encode_text(tokenizer: ByteLevelBPETokenizer, text: str) -> np.ndarray:
    """The tokens of a text, uint32 [num_tokens]."""
    no_tokens = np.empty(0, dtype=np.uint32)  # an empty text has no lines to concatenate
    return np.concatenate([no_tokens, *bpe.encode(tokenizer, _split_lines(text))])
