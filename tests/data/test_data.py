"""The data sets: which sample comes when and how often, what a mistake says, and that nothing else is disturbed."""

import itertools
import multiprocessing
import os
import random
import time
from types import SimpleNamespace

import datasets
import lightning
import numpy as np
import pytest
import tokenizers
import torch
from torch.utils.data import TensorDataset

from tests import forked
from tests.conftest import in_cache
from trainkit.config.errors import ConfigError
from trainkit.data import bpe
from trainkit.data.batches import ArrayDataset
from trainkit.data.cache import cached_folder
from trainkit.data.digits import Digits
from trainkit.data.module import DataModule
from trainkit.data.synthetic import Synthetic
from trainkit.data.text import Text
from trainkit.training.model import build_data

SENTENCES = "\n".join(f"Line {n} of the text says that {n} times {n} is {n * n}." for n in range(300))


class Numbers(DataModule):
    """The samples 0, 1, 2, ... so that a batch says which samples it holds."""

    def __init__(self, num_train=23, num_val=7, **settings):
        super().__init__(**{"batch_size": 4, "inputs": "tokens", **settings})
        self.train_set = ArrayDataset(np.arange(num_train), np.arange(num_train))
        self.val_set = ArrayDataset(np.arange(num_val), np.arange(num_val))


def on(datamodule, rank=0, world=1):
    """The data as the process `rank` of `world` sees it."""
    cpu = SimpleNamespace(root_device=torch.device("cpu"))
    datamodule.trainer = SimpleNamespace(world_size=world, global_rank=rank, strategy=cpu)
    datamodule.prepare_data()
    datamodule.setup("fit")
    return datamodule


def epoch(datamodule, number=0):
    loader = datamodule.train_dataloader()
    loader.sampler.set_epoch(number)
    return [inputs.tolist() for inputs, _ in loader]


def random_state():
    return torch.get_rng_state().tolist(), np.random.get_state()[1].tolist(), random.getstate()


@pytest.fixture
def make_text(tmp_path):
    """Text over SENTENCES, cached in tmp_path; each setting can be given."""
    path = tmp_path / "all.txt"
    path.write_text(SENTENCES)
    cache = tmp_path / "cache"
    return lambda **settings: Text(
        **{"path": str(path), "batch_size": 4, "seq_len": 16, "vocab_size": 300, "cache_dir": str(cache), **settings}
    )


# Order


def test_the_order_is_a_function_of_the_seed_and_the_epoch():
    first = epoch(on(Numbers(seed=1)))
    torch.manual_seed(99)
    assert epoch(on(Numbers(seed=1))) == first
    assert epoch(on(Numbers(seed=1)), number=1) != first
    assert epoch(on(Numbers(seed=2))) != first
    assert epoch(on(Numbers(seed=1, num_workers=1))) == first


@pytest.mark.parametrize("world", [2, 3])
def test_a_global_batch_holds_the_same_samples_for_any_number_of_processes(world):
    alone = epoch(on(Numbers(batch_size=2 * world)), number=3)
    ranks = [epoch(on(Numbers(batch_size=2), rank, world), number=3) for rank in range(world)]
    together = [list(itertools.chain(*batches)) for batches in zip(*ranks, strict=True)]
    assert [sorted(batch) for batch in together] == [sorted(batch) for batch in alone]


def test_training_batches_are_full_and_no_sample_comes_twice():
    batches = epoch(on(Numbers(num_train=23, batch_size=4)))
    assert [len(batch) for batch in batches] == [4] * 5
    assert len(set(itertools.chain(*batches))) == 20


@pytest.mark.parametrize("world", [1, 2, 3])
@pytest.mark.parametrize("num_val", [3, 8, 9, 10, 12, 13, 25])
def test_validation_has_every_sample_once_over_all_ranks(world, num_val):
    ranks = [list(on(Numbers(num_val=num_val), rank, world).val_dataloader()) for rank in range(world)]
    seen = [sample for batches in ranks for inputs, _ in batches for sample in inputs.tolist()]
    assert sorted(seen) == list(range(num_val))
    for batches in ranks:
        sizes = [len(inputs) for inputs, _ in batches]
        assert sizes[:-1] == [4] * (len(sizes) - 1)
        assert 1 <= sizes[-1] <= 4


def test_lightning_moves_the_order_on_from_epoch_to_epoch():
    class Recorder(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.weight, self.seen = torch.nn.Parameter(torch.zeros(())), []

        def training_step(self, batch):
            self.seen.append(batch[0].tolist())
            return self.weight * 0

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.1)

    recorder, quiet = Recorder(), {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    trainer = lightning.Trainer(
        max_epochs=2, accelerator="cpu", use_distributed_sampler=False, enable_checkpointing=False, **quiet
    )
    trainer.fit(recorder, Numbers(seed=5))
    assert recorder.seen == epoch(on(Numbers(seed=5)), 0) + epoch(on(Numbers(seed=5)), 1)


@pytest.mark.parametrize("num_workers", [0, 1])
def test_an_iterator_draws_nothing_from_the_global_random_state(num_workers):
    before = random_state()
    datamodule = on(Digits(batch_size=64, num_workers=num_workers))
    next(iter(datamodule.train_dataloader()))
    next(iter(datamodule.val_dataloader()))
    datamodule.sample()
    assert random_state() == before


def test_samples_of_an_ordinary_data_set_are_stacked_into_a_tuple():
    datamodule = Numbers()
    datamodule.train_set = datamodule.val_set = TensorDataset(torch.rand(9, 2), torch.arange(9))
    for batch in (next(iter(on(datamodule).train_dataloader())), next(iter(datamodule.val_dataloader()))):
        assert isinstance(batch, tuple)
        assert [part.shape for part in batch] == [(4, 2), (4,)]


def test_too_few_samples_for_the_processes_are_one_line():
    with pytest.raises(ConfigError) as error:
        on(Numbers(num_train=7, num_val=1, batch_size=4), 0, 2).val_dataloader()
    assert error.value.complaints == (
        "data.batch_size = 4: numbers has 7 training samples, less than one batch for 2 process(es); "
        "try data.batch_size=3",
        "data = numbers: 1 validation samples for 2 process(es); give more data or a larger data.val_fraction, "
        "or use fewer processes",
    )
    with pytest.raises(ConfigError, match="fewer processes"):
        on(Numbers(num_train=1, batch_size=4), 0, 2).train_dataloader()


# Digits


def test_digits_are_images_in_0_to_1_and_the_seed_splits_them():
    datamodule = on(Digits(batch_size=64, seed=3))
    inputs, targets = next(iter(datamodule.train_dataloader()))
    assert (inputs.shape, inputs.dtype) == ((64, 1, 8, 8), torch.float32)
    assert (targets.shape, targets.dtype) == ((64,), torch.int64)
    assert inputs.min() == 0
    assert inputs.max() == 1
    assert set(targets.tolist()) == set(range(10))
    everything = lambda digits: np.concatenate([digits.train_set.inputs, digits.val_set.inputs])  # noqa: E731
    assert (len(datamodule.train_set), len(datamodule.val_set)) == (1438, 359)
    same, other = on(Digits(batch_size=64, seed=3)), on(Digits(batch_size=64, seed=4))
    assert np.array_equal(everything(same), everything(datamodule))
    assert not np.array_equal(everything(other), everything(datamodule))
    assert np.array_equal(*(np.sort(everything(digits).sum((1, 2, 3))) for digits in (other, datamodule)))


def test_digits_name_every_setting_that_contradicts_them():
    with pytest.raises(ConfigError) as error:
        Digits(batch_size=4, channels=3, image_size=32, num_classes=5, inputs="tokens", val_fraction=1.5)
    assert error.value.complaints == (
        "data.inputs = tokens: digits has images; say data.inputs=images",
        "data.channels = 3: digits has 1; say data.channels=1",
        "data.image_size = 32: digits has 8; say data.image_size=8",
        "data.num_classes = 5: digits has 10; say data.num_classes=10",
        "data.val_fraction = 1.5: expected a fraction between 0 and 1; try 0.2",
    )


# Text


def decode(datamodule, tokens):
    return tokenizers.Tokenizer.from_file(str(datamodule.cache_folder / "tokenizer.json")).decode(
        tokens.flatten().tolist()
    )


def test_text_comes_in_blocks_that_follow_each_other_and_targets_are_one_token_on(make_text):
    datamodule = on(make_text())
    batches = list(datamodule.val_dataloader())
    inputs, targets = (torch.cat(parts) for parts in zip(*batches, strict=True))
    assert inputs.shape[1] == 16
    assert inputs.dtype == targets.dtype == torch.int64
    assert torch.equal(inputs.flatten()[1:], targets.flatten()[:-1])
    cut = len(SENTENCES) - round(0.1 * len(SENTENCES))
    val = SENTENCES[cut:]
    assert val.startswith(decode(datamodule, inputs))
    assert len(decode(datamodule, inputs)) > 0.8 * len(val)
    train, _ = datamodule.train_set.__getitems__(range(len(datamodule.train_set)))
    assert SENTENCES[:cut].startswith(decode(datamodule, train))
    assert train.max() < 300


def test_a_folder_is_read_in_sorted_order_with_its_subfolders(make_text, tmp_path):
    folder = tmp_path / "folder"
    (folder / "sub").mkdir(parents=True)
    for name in ("k", "z", "sub/b", "a", "y", "sub/a", "x"):  # neither sorted nor reversed
        (folder / f"{name}.txt").write_text(f"{name} é " * 20)
    (folder / "a.md").write_text("not this one")
    datamodule = on(make_text(path=str(folder), val_path=str(folder / "k.txt")))
    text = decode(datamodule, torch.from_numpy(np.load(datamodule.cache_folder / "train.npy").astype(np.int64)))
    assert text == "\n".join(f"{name} é " * 20 for name in ("a", "k", "sub/a", "sub/b", "x", "y", "z"))


def test_the_tokenizer_learns_from_the_training_text_alone(make_text, tmp_path):
    (tmp_path / "val.txt").write_text("zyzzyva " * 500)
    datamodule = on(make_text(val_path=str(tmp_path / "val.txt"), vocab_size=600))
    vocab = tokenizers.Tokenizer.from_file(str(datamodule.cache_folder / "tokenizer.json")).get_vocab()
    assert not [token for token in vocab if "zy" in token]
    assert [token for token in vocab if "times" in token]


def test_a_cached_text_is_not_encoded_again(make_text, monkeypatch):
    first = epoch(on(make_text()))
    monkeypatch.setattr(bpe, "ByteLevelBPETokenizer", None)  # to train one would raise
    assert epoch(on(make_text())) == first
    with pytest.raises(TypeError):
        on(make_text(vocab_size=301))


def test_the_cache_knows_a_text_by_its_content_and_the_settings_that_shape_it(make_text, tmp_path):
    (tmp_path / "copy.txt").write_text(SENTENCES)
    (tmp_path / "other.txt").write_text(SENTENCES.replace("Line 7 ", "Line 8 "))
    same = [make_text(), make_text(path=str(tmp_path / "copy.txt")), make_text(seq_len=8, batch_size=2, seed=1)]
    different = [
        make_text(path=str(tmp_path / "other.txt")),
        make_text(vocab_size=301),
        make_text(val_fraction=0.2),
        make_text(val_path=str(tmp_path / "copy.txt")),
    ]
    assert len({text.cache_folder for text in same}) == 1
    assert len({text.cache_folder for text in [same[0], *different]}) == 5


def test_two_processes_may_encode_the_same_text_at_once(tmp_path):
    (tmp_path / "all.txt").write_text(SENTENCES * 20)
    program = """
from trainkit.data.text import Text
text = Text(path="all.txt", batch_size=4, seq_len=16, vocab_size=400, cache_dir="cache")
together()
text.prepare_data()
text.setup("fit")
print(int(text.train_set.inputs.sum()), len(text.val_set))
"""
    one, other = forked.twice(program, tmp_path)
    assert one == other
    (cached,) = in_cache(tmp_path / "cache")  # one result and nothing unfinished
    assert sorted(file.name for file in cached.iterdir()) == ["tokenizer.json", "train.npy", "val.npy"]


def test_an_interrupted_encoding_leaves_nothing_that_is_trusted(make_text, tmp_path, monkeypatch):
    def interrupted(*args):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(bpe, "encode", interrupted)
        with pytest.raises(KeyboardInterrupt):
            on(make_text())
    assert in_cache(tmp_path / "cache") == []
    assert epoch(on(make_text()))


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"path": None}, "data.path = null: no text; {remedy}"),
        (
            {"path": "no/such.txt"},
            "data.path = no/such.txt: no such file or folder; {remedy}",
        ),
        (
            {"val_path": "gone"},
            "data.val_path = gone: no such file or folder; {remedy}",
        ),
        (
            {"path": "{tmp}"},
            "data.path = {tmp}: no .txt file in this folder; {remedy}",
        ),
        (
            {"vocab_size": 255},
            "data.vocab_size = 255: byte-level BPE starts from the 256 bytes; try data.vocab_size=1024",
        ),
        ({"num_classes": 2}, "data.num_classes = 2: text has 300; say data.num_classes=300"),
        ({"next_token": False}, "data.next_token = False: text has True; say data.next_token=True"),
        ({"val_fraction": 0}, "data.val_fraction = 0: expected a fraction between 0 and 1; try 0.1"),
        ({"val_fraction": "most"}, "data.val_fraction = most: expected a fraction between 0 and 1; try 0.1"),
        ({"seq_len": 0}, "data.seq_len = 0: expected 1 or more; try data.seq_len=128"),
    ],
)
def test_a_setting_that_text_cannot_use_is_one_line_at_once(make_text, tmp_path, settings, complaint):
    (tmp_path / "all.txt").rename(tmp_path / "all.text")  # so that {tmp} has no .txt
    settings = {key: str(tmp_path) if value == "{tmp}" else value for key, value in settings.items()}
    with pytest.raises(ConfigError) as error:
        make_text(**{"path": str(tmp_path / "all.text"), **settings})
    remedy = "give a text file, a folder of .txt files, or owner/name of the hub"
    assert error.value.complaints == (complaint.replace("{tmp}", str(tmp_path)).replace("{remedy}", remedy),)


def test_all_that_is_wrong_with_the_settings_of_text_is_said_at_once(make_text):
    with pytest.raises(ConfigError) as error:
        make_text(path=None, val_path="gone", vocab_size=9, num_classes=10)
    assert len(error.value.complaints) == 4


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "data.path = {file}: the text is empty"),
        (b" \n\n ", "data.path = {file}: the text is empty"),
        (b"fine \xff\xfe not", "data.path = {file}: {file} is not UTF-8 (byte 5)"),
        (b"x", "data.path = {file}: 1 tokens are too few for one block of data.seq_len = 16"),
        (b"short", "data.path = {file}: 5 tokens are too few for one block of data.seq_len = 16"),
        (b"Long enough to train, not to validate.", "data.val_fraction = 0.1: 4 tokens are too few for one block"),
    ],
)
def test_a_text_that_cannot_be_used_is_one_line_naming_it(make_text, tmp_path, content, problem):
    file = tmp_path / "bad.txt"
    file.write_bytes(content)
    with pytest.raises(ConfigError) as error:
        make_text(path=str(file)).sample()
    (complaint,) = error.value.complaints
    assert complaint.startswith(problem.replace("{file}", str(file)))
    assert "; " in complaint


def test_a_cache_that_cannot_be_written_is_one_line(make_text, tmp_path):
    (tmp_path / "taken").write_text("a file, not a folder")
    with pytest.raises(ConfigError, match=r"^data\.cache_dir = .*taken.*: Not a directory; give a folder"):
        make_text(cache_dir=str(tmp_path / "taken" / "cache")).sample()


def test_workers_after_an_encoding_stay_silent(make_text, capfd):
    batches = epoch(on(make_text(num_workers=1)))
    assert batches == epoch(on(make_text()))
    assert "parallelism" not in capfd.readouterr().err


# WikiText


def test_wikitext_of_the_hub_is_its_text_and_its_own_validation_split(make_text, monkeypatch):
    rows = {"train": SENTENCES.splitlines()[:200], "validation": SENTENCES.splitlines()[200:], "test": ["not this"]}
    # As the hub has it: lines bring their ends along, but for the empty ones.
    splits = {name: datasets.Dataset.from_dict({"text": ["", *(f" {row} \n" for row in rows[name])]}) for name in rows}
    asked_for = []
    monkeypatch.setattr(datasets, "load_dataset", lambda *names, **kw: asked_for.append(names) or splits)
    datamodule = on(make_text(path="Salesforce/wikitext", subset="wikitext-2-raw-v1"))
    for split, name in (("train", "train"), ("val", "validation")):
        text = decode(datamodule, torch.from_numpy(np.load(datamodule.cache_folder / f"{split}.npy").astype(np.int64)))
        assert text == "\n" + "".join(f" {row} \n" for row in rows[name])
    assert set(asked_for) == {("Salesforce/wikitext", "wikitext-2-raw-v1")}
    del splits["validation"], splits["test"]
    datamodule = on(make_text(path="Salesforce/wikitext"))
    tokens = datamodule.train_set.inputs.size, datamodule.val_set.inputs.size
    assert tokens[0] > 5 * tokens[1]


def test_a_hub_without_text_or_out_of_reach_is_one_line(make_text, monkeypatch, capfd):
    with monkeypatch.context() as patch:
        patch.setattr(datasets, "load_dataset", lambda *names, **kw: {"train": datasets.Dataset.from_dict({"a": [1]})})
        with pytest.raises(ConfigError, match=r"^data\.path = some/data: has a, but no column text; give a text file"):
            on(make_text(path="some/data"))
        patch.setattr(datasets, "load_dataset", lambda *names, **kw: {"other": None})
        with pytest.raises(
            ConfigError, match=r"^data\.val_path = some/data: nothing to validate on in it; give a text"
        ):
            on(make_text(val_path="some/data"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("datasets.config.HF_HUB_OFFLINE", True)
    with pytest.raises(ConfigError, match=r"^data\.path = some/data: .*; give a text file, .* of the hub$"):
        on(make_text(path="some/data"))
    assert capfd.readouterr() == ("", "")


def test_wikitext_takes_files_in_place_of_the_hub(compose, text_file, tmp_path):
    config = compose(
        "model=gpt2", "data=wikitext", f"data.path={text_file}", f"data.val_path={text_file}", "data.seq_len=16",
        f"data.cache_dir={tmp_path / 'cache'}", "data.vocab_size=300",
    )  # fmt: skip
    datamodule = on(build_data(config))
    assert torch.equal(next(iter(datamodule.val_dataloader()))[0][0], datamodule.sample()[0][0])


# Synthetic


def synthetic(**settings):
    return Synthetic(
        **{"batch_size": 4, "inputs": "images", "image_size": 6, "seq_len": 5, "vocab_size": 9, **settings}
    )


@pytest.mark.parametrize(
    ("settings", "shape", "num_classes", "targets_shape"),
    [
        ({}, (3, 6, 6), 10, ()),
        ({"inputs": "tokens", "num_classes": 2}, (5,), 2, ()),
        ({"inputs": "tokens", "num_classes": 9, "next_token": True}, (5,), 9, (5,)),
    ],
)
def test_synthetic_batches_have_the_declared_shapes_and_disturb_no_random_state(
    settings, shape, num_classes, targets_shape
):
    before = random_state()
    datamodule = on(synthetic(**settings))
    batches = [next(iter(loader)) for loader in (datamodule.train_dataloader(), datamodule.val_dataloader())]
    sample = synthetic(**settings).sample()  # without a trainer
    assert random_state() == before
    for size, (inputs, targets) in ((4, batches[0]), (4, batches[1]), (2, sample)):
        assert inputs.shape == (size, *shape)
        assert targets.shape == (size, *targets_shape)
        assert inputs.is_contiguous()
        assert targets.is_contiguous()
        assert targets.dtype == torch.int64
        assert targets.min() >= 0
        assert targets.max() < num_classes
        assert inputs.dtype == (torch.float32 if datamodule.inputs == "images" else torch.int64)
        if targets_shape:
            assert torch.equal(inputs[:, 1:], targets[:, :-1])


def test_synthetic_goes_round_its_distinct_batches_and_makes_nothing_new():
    datamodule = on(synthetic(num_batches=7, num_distinct=3, num_val_batches=2))
    loader = datamodule.train_dataloader()
    batches = list(loader)
    assert len(loader) == len(batches) == 7
    assert len(list(loader)) == 7
    assert [id(inputs) for inputs, _ in batches[3:6]] == [id(inputs) for inputs, _ in batches[:3]]
    assert len({id(inputs) for inputs, _ in batches}) == 3
    assert not torch.equal(batches[0][0], batches[1][0])
    assert len(list(datamodule.val_dataloader())) == len(datamodule.val_dataloader()) == 2


def test_synthetic_batches_are_a_function_of_the_seed_and_the_rank():
    first = lambda seed, rank: next(iter(on(synthetic(seed=seed), rank, 2).train_dataloader()))[0]  # noqa: E731
    assert torch.equal(first(0, 0), first(0, 0))
    assert not torch.equal(first(0, 0), first(0, 1))
    assert not torch.equal(first(0, 0), first(5, 0))


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"inputs": "sound"}, "data.inputs = sound: expected images or tokens; leave it to the model"),
        ({"num_distinct": 0}, "data.num_distinct = 0: expected 1 or more; try data.num_distinct=4"),
        ({"num_batches": 0}, "data.num_batches = 0: expected 1 or more; try data.num_batches=4"),
        ({"num_val_batches": -1}, "data.num_val_batches = -1: expected 0 or more; try 5"),
        ({"next_token": True}, "data.next_token = True: images have no next token; choose a model that takes tokens"),
        (
            {"inputs": "tokens", "next_token": True},
            "data.num_classes = 10: the next token is one of data.vocab_size = 9; say data.num_classes=9",
        ),
    ],
)
def test_synthetic_settings_that_cannot_be_are_one_line(settings, complaint):
    with pytest.raises(ConfigError) as error:
        synthetic(**settings)
    assert error.value.complaints == (complaint,)


def test_what_a_killed_process_left_in_the_cache_is_removed(tmp_path):
    def killed(folder):
        (folder / "half").touch()
        os._exit(9)

    child = multiprocessing.get_context("fork").Process(target=cached_folder, args=(tmp_path, "content", killed))
    child.start()
    child.join(60)
    assert child.exitcode == 9
    (left,) = in_cache(tmp_path)
    made = cached_folder(tmp_path, "content", lambda folder: (folder / "whole").touch())
    assert in_cache(tmp_path) == [made] != [left]
    assert [file.name for file in made.iterdir()] == ["whole"]


def test_one_of_several_processes_makes_what_all_wait_for(tmp_path):
    def make(folder):
        with (tmp_path / "log").open("a") as log:
            log.write("made\n")
        time.sleep(0.5)

    fork = multiprocessing.get_context("fork")
    children = [fork.Process(target=cached_folder, args=(tmp_path / "cache", "content", make)) for _ in range(3)]
    for child in children:
        child.start()
    for child in children:
        child.join(60)
    assert [child.exitcode for child in children] == [0, 0, 0]
    assert (tmp_path / "log").read_text() == "made\n"
