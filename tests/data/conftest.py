"""What the tests of data sets share: a data set as a rank sees it, an epoch of it, and a table of reviews."""

import itertools
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar

import numpy as np
import pytest
import tokenizers
import torch
from lightning.fabric.utilities.data import _set_sampler_epoch

from trainkit.config.errors import ConfigError
from trainkit.data.module import DataModule
from trainkit.data.sequences import CLS, NUM_SPECIAL
from trainkit.data.tables import Table

Data = TypeVar("Data", bound=DataModule)
WORDS = ("dull", "bright", "plot", "cast", "scene", "a", "the", "of")


def set_up(data: Data, rank: int = 0, world_size: int = 1) -> Data:
    """The data as the process `rank` of `world_size` sees it."""
    strategy = SimpleNamespace(root_device=torch.device("cpu"))
    data.trainer = SimpleNamespace(world_size=world_size, global_rank=rank, strategy=strategy)
    data.prepare_data()
    data.setup("fit")
    return data


def epoch_inputs(data: DataModule, epoch: int = 0) -> list[Any]:
    """The inputs of each training batch of an epoch, as lists."""
    loader = data.train_dataloader()
    _set_sampler_epoch(loader, epoch)  # as Lightning does
    return [inputs.tolist() for inputs, _ in loader]


def random_state() -> tuple[Any, ...]:
    return torch.get_rng_state().tolist(), np.random.get_state()[1].tolist(), random.getstate()


def reviews(num: int, start: int = 0) -> list[tuple[str, str]]:
    """Texts of 1 to 12 words with classes 0 and 1 in turn; the first word tells the class."""
    rows = []
    for n in range(start, start + num):
        words = [WORDS[n % 2]]
        words += [WORDS[2 + (n * k) % 6] for k in range(1, 1 + n % 12)]
        rows.append((" ".join(words), str(n % 2)))
    return rows


def lines(rows: Sequence[tuple[str, ...]]) -> str:
    """The text of a .tsv file."""
    return "".join("\t".join(row) + "\n" for row in rows)


@pytest.fixture
def table(tmp_path: Path) -> Callable[..., Table]:
    """Table over reviews in train.tsv and dev.tsv, cached in tmp_path; each setting can be given."""
    (tmp_path / "train.tsv").write_text(lines(reviews(40)))
    (tmp_path / "dev.tsv").write_text(lines(reviews(15, start=40)))
    settings: dict[str, Any] = {"path": str(tmp_path), "columns": ["text", "label"], "batch_size": 4, "seq_len": 10}
    settings |= {"vocab_size": 300, "cache_dir": str(tmp_path / "cache")}
    return lambda **changes: Table(**{**settings, **changes})


def decoded(data: Table, inputs: torch.Tensor) -> list[str]:
    """The texts of a batch; | for the token between two of them."""
    tokenizer = tokenizers.Tokenizer.from_file(str(data.cache_folder / "tokenizer.json"))
    batch = []
    for row in inputs.tolist():
        assert row[0] == CLS
        texts: list[list[int]] = []
        for is_text, tokens in itertools.groupby(row[1:], lambda token: token >= NUM_SPECIAL):
            if is_text:
                texts.append([token - NUM_SPECIAL for token in tokens])
        batch.append("|".join(tokenizer.decode(tokens) for tokens in texts))
    return batch


def train_samples(data: Table) -> tuple[list[str], list[int]]:
    inputs, targets = data.train_set.__getitems__(range(len(data.train_set)))
    return decoded(data, inputs), targets.tolist()


def complaint(data: Table | None = None, **settings: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        data.sample() if data else Table(**settings)
    (line,) = caught.value.complaints
    assert "\n" not in line
    return line
