"""Text files as blocks of tokens, every next token predicted."""

import hashlib
import os
from functools import cached_property
from pathlib import Path

import numpy as np
import tokenizers
from tokenizers import ByteLevelBPETokenizer

from trainkit.config import ConfigError
from trainkit.data.cache import cached
from trainkit.data.module import ArrayDataset, DataModule

NUM_BYTES = 256  # the alphabet that byte-level BPE starts from
ENCODING = 1  # raise it when the code below turns the same text into other tokens: older caches are then left alone


class Text(DataModule):
    """Blocks of seq_len tokens that do not overlap: int64 [B, seq_len], the targets are the inputs one token on.

    `path` and `val_path` are a text file or a folder whose .txt files are read in sorted order, subfolders included;
    without `val_path` the last `val_fraction` of the characters validate. The tokens are byte-level BPE (Sennrich et
    al. 2016, https://arxiv.org/abs/1508.07909; bytes as in GPT-2), at most vocab_size of them, learnt from the
    training text alone. Tokenizer and tokens are made once and kept in `cache_dir`, under a hash of all that decides
    them; any number of processes may do so at once. ConfigError for paths, texts and sizes that cannot be used.
    """

    def __init__(
        self,
        *,
        path: str | None,
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
        self.val_fraction = val_fraction
        self.cache_dir = Path(cache_dir).expanduser()
        if complaints := self._complaints():
            raise ConfigError(*complaints)

    def prepare_data(self) -> None:
        """Fills the cache if this text was not encoded before."""
        assert self._cache

    def setup(self, stage: str) -> None:
        self.train_set = self._blocks("train.npy", "data.path", self.path)
        if self.val_path is None:
            self.val_set = self._blocks("val.npy", "data.val_fraction", self.val_fraction)
        else:
            self.val_set = self._blocks("val.npy", "data.val_path", self.val_path)

    @cached_property
    def _cache(self) -> Path:
        """The folder of this text's tokens, made at the first look."""
        val = (self.val_fraction,) if self.val_path is None else _digests(self.val_path)
        made_from = (ENCODING, tokenizers.__version__, self.sizes["vocab_size"], _digests(self.path), val)
        return cached(self.cache_dir, made_from, self._encode_into)

    def _encode_into(self, folder: Path) -> None:
        train = _read("data.path", self.path)
        if self.val_path is None:
            cut = len(train) - round(len(train) * self.val_fraction)
            train, val = train[:cut], train[cut:]
        else:
            val = _read("data.val_path", self.val_path)
        # Else tokenizers 0.21 (not 0.23) prints a warning in each worker that a DataLoader forks later on.
        os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")
        tokenizer = ByteLevelBPETokenizer()
        tokenizer.train_from_iterator(_lines(train), vocab_size=self.sizes["vocab_size"], show_progress=False)
        tokenizer.save(str(folder / "tokenizer.json"))
        dtype = np.uint16 if self.sizes["vocab_size"] <= 2**16 else np.uint32
        np.save(folder / "train.npy", _encode(tokenizer, train).astype(dtype))
        np.save(folder / "val.npy", _encode(tokenizer, val).astype(dtype))

    def _blocks(self, file: str, setting: str, value: object) -> ArrayDataset:
        tokens, seq_len = np.load(self._cache / file, mmap_mode="r"), self.sizes["seq_len"]
        num_blocks = (len(tokens) - 1) // seq_len
        if num_blocks < 1:
            raise ConfigError(
                f"{setting} = {value}: {len(tokens)} tokens are too few for one block of data.seq_len = {seq_len} "
                "and the token after it; give more text or a smaller data.seq_len"
            )
        end = num_blocks * seq_len
        return ArrayDataset(tokens[:end].reshape(-1, seq_len), tokens[1 : end + 1].reshape(-1, seq_len))

    def _complaints(self) -> list[str]:
        vocab_size = self.sizes["vocab_size"]
        complaints = self.contradictions(inputs="tokens", next_token=True, num_classes=vocab_size)
        if vocab_size < NUM_BYTES:
            complaints.append(
                f"data.vocab_size = {vocab_size}: byte-level BPE starts from the {NUM_BYTES} bytes; "
                "try data.vocab_size=1024"
            )
        complaints += _path_complaints("data.path", self.path)
        if self.val_path is not None:
            complaints += _path_complaints("data.val_path", self.val_path)
        elif not 0 < self.val_fraction < 1:
            complaints.append(f"data.val_fraction = {self.val_fraction}: expected a part of the text; try 0.1")
        return complaints


def _path_complaints(setting: str, path: str) -> list[str]:
    remedy = "give a text file or a folder of .txt files"
    if not path:
        return [f"{setting} = null: no text; {remedy}"]
    if not Path(path).expanduser().exists():
        return [f"{setting} = {path}: no such file or folder; {remedy}"]
    if not _files(path):
        return [f"{setting} = {path}: no .txt file in this folder; {remedy}"]
    return [
        f"{setting} = {path}: {file} cannot be read; {remedy}" for file in _files(path) if not os.access(file, os.R_OK)
    ]


def _files(path: str) -> list[Path]:
    where = Path(path).expanduser()
    return sorted(file for file in where.rglob("*.txt") if file.is_file()) if where.is_dir() else [where]


def _digests(path: str) -> tuple[str, ...]:
    return tuple(hashlib.sha256(file.read_bytes()).hexdigest() for file in _files(path))


def _read(setting: str, path: str) -> str:
    texts = []
    for file in _files(path):
        try:
            texts.append(file.read_text(encoding="utf-8"))
        except UnicodeDecodeError as error:
            raise ConfigError(
                f"{setting} = {path}: {file} is not UTF-8 (byte {error.start}); convert it or leave it out"
            ) from error
    text = "\n".join(texts)
    if not text.strip():
        raise ConfigError(f"{setting} = {path}: the text is empty; give a text file or a folder of .txt files")
    return text


def _lines(text: str) -> list[str]:
    return text.splitlines(keepends=True)


def _encode(tokenizer: ByteLevelBPETokenizer, text: str, num_lines: int = 10_000) -> np.ndarray:
    """Encodes some lines at a time: the library's encodings take a hundred times the memory of their tokens."""
    lines = _lines(text)
    tokens = [
        np.array(encoding.ids, dtype=np.uint32)
        for start in range(0, len(lines), num_lines)
        for encoding in tokenizer.encode_batch(lines[start : start + num_lines])
    ]
    return np.concatenate([np.empty(0, dtype=np.uint32), *tokens])
