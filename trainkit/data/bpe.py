"""Byte-level BPE: the tokens of a text (Sennrich et al. 2016, https://arxiv.org/abs/1508.07909; bytes as in GPT-2)."""

import os
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import tokenizers
from tokenizers import ByteLevelBPETokenizer

NUM_BYTES = 256  # the tokens that learning starts from
VERSION = ("bpe 1", tokenizers.__version__)  # part of a cache's key: another version may make other tokens


def learn(texts: Iterable[str], vocab_size: int) -> ByteLevelBPETokenizer:
    """A tokenizer with at most vocab_size tokens, learnt from these texts. It can encode any text."""
    # Without it tokenizers 0.21 (not 0.23) prints a warning in each worker that a DataLoader forks later.
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")
    tokenizer = ByteLevelBPETokenizer()
    tokenizer.train_from_iterator(texts, vocab_size=vocab_size, show_progress=False)
    return tokenizer


def encode(tokenizer: ByteLevelBPETokenizer, texts: Sequence[str], num_at_once: int = 10_000) -> Iterator[np.ndarray]:
    """The tokens of each text, uint32.

    Some texts at a time: the library's encodings take a hundred times the memory of their tokens.
    """
    for start in range(0, len(texts), num_at_once):
        for encoding in tokenizer.encode_batch(texts[start : start + num_at_once]):
            yield np.array(encoding.ids, dtype=np.uint32)


def dtype(vocab_size: int) -> type[np.uint16] | type[np.uint32]:
    """The smallest type that holds each token of the vocabulary."""
    return np.uint16 if vocab_size <= 2**16 else np.uint32
