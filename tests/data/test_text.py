"""Texts: what a block is, what the tokens are learnt from, what is cached, and what an error says."""

import datasets
import numpy as np
import pytest
import tokenizers
import torch

from tests import forked
from tests.conftest import in_cache
from tests.data.conftest import epoch_inputs, set_up
from trainkit.config.errors import ConfigError
from trainkit.data import bpe
from trainkit.data.text import Text
from trainkit.training.model import build_data

SENTENCES = "\n".join(f"Line {n} of the text says that {n} times {n} is {n * n}." for n in range(300))


@pytest.fixture
def make_text(tmp_path):
    """Text over SENTENCES, cached in tmp_path; each setting can be given."""
    path = tmp_path / "all.txt"
    path.write_text(SENTENCES)
    cache = tmp_path / "cache"
    return lambda **settings: Text(
        **{"path": str(path), "batch_size": 4, "seq_len": 16, "vocab_size": 300, "cache_dir": str(cache), **settings}
    )


def decode(datamodule, tokens):
    return tokenizers.Tokenizer.from_file(str(datamodule.cache_folder / "tokenizer.json")).decode(
        tokens.flatten().tolist()
    )


def test_text_comes_in_blocks_that_follow_each_other_and_targets_are_one_token_on(make_text):
    datamodule = set_up(make_text())
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
    datamodule = set_up(make_text(path=str(folder), val_path=str(folder / "k.txt")))
    text = decode(datamodule, torch.from_numpy(np.load(datamodule.cache_folder / "train.npy").astype(np.int64)))
    assert text == "\n".join(f"{name} é " * 20 for name in ("a", "k", "sub/a", "sub/b", "x", "y", "z"))


def test_the_tokenizer_learns_from_the_training_text_alone(make_text, tmp_path):
    (tmp_path / "val.txt").write_text("zyzzyva " * 500)
    datamodule = set_up(make_text(val_path=str(tmp_path / "val.txt"), vocab_size=600))
    vocab = tokenizers.Tokenizer.from_file(str(datamodule.cache_folder / "tokenizer.json")).get_vocab()
    assert not [token for token in vocab if "zy" in token]
    assert [token for token in vocab if "times" in token]


def test_a_cached_text_is_not_encoded_again(make_text, monkeypatch):
    first = epoch_inputs(set_up(make_text()))
    monkeypatch.setattr(bpe, "ByteLevelBPETokenizer", None)  # to train one would raise
    assert epoch_inputs(set_up(make_text())) == first
    with pytest.raises(TypeError):
        set_up(make_text(vocab_size=301))


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
    assert sorted(file.name for file in cached.iterdir()) == ["contents.json", "tokenizer.json", "train.npy", "val.npy"]


def test_an_interrupted_encoding_leaves_nothing_that_is_trusted(make_text, tmp_path, monkeypatch):
    def interrupted(*args):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(bpe, "encode", interrupted)
        with pytest.raises(KeyboardInterrupt):
            set_up(make_text())
    assert in_cache(tmp_path / "cache") == []
    assert epoch_inputs(set_up(make_text()))


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
        ({"seq_len": 0}, "data.seq_len = 0: expected 1 or more"),
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
    batches = epoch_inputs(set_up(make_text(num_workers=1)))
    assert batches == epoch_inputs(set_up(make_text()))
    assert "parallelism" not in capfd.readouterr().err


def test_wikitext_of_the_hub_is_its_text_and_its_own_validation_split(make_text, monkeypatch):
    rows = {"train": SENTENCES.splitlines()[:200], "validation": SENTENCES.splitlines()[200:], "test": ["not this"]}
    # As the hub has it: lines bring their ends along, but for the empty ones.
    splits = {name: datasets.Dataset.from_dict({"text": ["", *(f" {row} \n" for row in rows[name])]}) for name in rows}
    asked_for = []
    monkeypatch.setattr(datasets, "load_dataset", lambda *names, **kw: asked_for.append(names) or splits)
    datamodule = set_up(make_text(path="Salesforce/wikitext", subset="wikitext-2-raw-v1"))
    for split, name in (("train", "train"), ("val", "validation")):
        text = decode(datamodule, torch.from_numpy(np.load(datamodule.cache_folder / f"{split}.npy").astype(np.int64)))
        assert text == "\n" + "".join(f" {row} \n" for row in rows[name])
    assert set(asked_for) == {("Salesforce/wikitext", "wikitext-2-raw-v1")}
    del splits["validation"], splits["test"]
    datamodule = set_up(make_text(path="Salesforce/wikitext"))
    tokens = datamodule.train_set.inputs.size, datamodule.val_set.inputs.size
    assert tokens[0] > 5 * tokens[1]


def test_a_hub_without_text_or_out_of_reach_is_one_line(make_text, monkeypatch, capfd):
    with monkeypatch.context() as patch:
        patch.setattr(datasets, "load_dataset", lambda *names, **kw: {"train": datasets.Dataset.from_dict({"a": [1]})})
        with pytest.raises(ConfigError, match=r"^data\.path = some/data: has a, but no column text; give a text file"):
            set_up(make_text(path="some/data"))
        patch.setattr(datasets, "load_dataset", lambda *names, **kw: {"other": None})
        with pytest.raises(
            ConfigError, match=r"^data\.val_path = some/data: nothing to validate on in it; give a text"
        ):
            set_up(make_text(val_path="some/data"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("datasets.config.HF_HUB_OFFLINE", True)
    with pytest.raises(ConfigError, match=r"^data\.path = some/data: .*; give a text file, .* of the hub$"):
        set_up(make_text(path="some/data"))
    assert capfd.readouterr() == ("", "")


def test_wikitext_takes_files_in_place_of_the_hub(compose, text_file, tmp_path):
    config = compose(
        "model=gpt2", "data=wikitext", f"data.path={text_file}", f"data.val_path={text_file}", "data.seq_len=16",
        f"data.cache_dir={tmp_path / 'cache'}", "data.vocab_size=300",
    )  # fmt: skip
    datamodule = set_up(build_data(config))
    assert torch.equal(next(iter(datamodule.val_dataloader()))[0][0], datamodule.sample()[0][0])
