"""Tables of texts: what a sequence is, how a batch is padded, what is cached, and a run on them."""

import itertools
import re

import datasets
import numpy as np
import pytest
import torch

from tests import forked
from tests.conftest import in_cache
from tests.data.conftest import complaint, decoded, epoch_inputs, lines, reviews, set_up, train_samples
from trainkit.config.errors import ConfigError
from trainkit.data import bpe
from trainkit.data.tables import TASKS, Glue, Table
from trainkit.distributed.topology import select_devices
from trainkit.inputs import call
from trainkit.training.model import build_data, build_model
from trainkit.training.run import run


def test_sequences_are_the_texts_behind_a_first_token_and_targets_their_classes(table):
    data = set_up(table(seq_len=64))
    assert train_samples(data) == ([text for text, _ in reviews(40)], [n % 2 for n in range(40)])
    inputs, targets = next(iter(data.val_dataloader()))
    assert decoded(data, inputs) == [text for text, _ in reviews(4, start=40)]
    assert (inputs.dtype, targets.dtype, targets.tolist()) == (torch.int64, torch.int64, [0, 1, 0, 1])


def test_longer_texts_are_cut_at_seq_len(table):
    whole, cut = set_up(table(seq_len=64)), set_up(table(seq_len=5))
    assert np.array_equal(np.diff(cut.train_set.starts), np.minimum(np.diff(whole.train_set.starts), 5))
    for n in range(40):
        inputs, _ = whole.train_set.__getitems__([n])
        assert torch.equal(cut.train_set.__getitems__([n])[0], inputs[:, :5])


@pytest.mark.parametrize(
    ("padding", "expected"),
    [
        ("longest", lambda longest: longest),
        ("fixed", lambda longest: 10),
        ("buckets", lambda longest: 4 if longest <= 4 else 7 if longest <= 7 else 10),
    ],
)
def test_a_batch_is_as_long_as_its_padding_says(table, padding, expected):
    data = set_up(table(padding=padding, buckets=[4, 7], batch_size=2))
    lengths, seen = np.diff(data.val_set.starts), set()
    for n, (inputs, _) in enumerate(data.val_dataloader()):
        used = lengths[2 * n : 2 * n + 2]
        assert inputs.shape[1] == expected(max(used))
        assert all((row[:num] > 0).all() and (row[num:] == 0).all() for row, num in zip(inputs, used, strict=True))
        seen.add(inputs.shape[1])
    assert (
        len(seen)
        == {"longest": len({max(lengths[n : n + 2]) for n in range(0, 15, 2)}), "fixed": 1, "buckets": 3}[padding]
    )


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"padding": "none"}, "data.padding = none: expected one of longest, buckets, fixed"),
        (
            {"padding": "buckets"},
            "data.buckets = []: expected rising lengths up to data.seq_len = 10; try data.buckets=[2,5]",
        ),
        ({"padding": "buckets", "buckets": [7, 4]}, "data.buckets = [7, 4]: expected rising lengths"),
        ({"padding": "buckets", "buckets": [4, 4]}, "data.buckets = [4, 4]: expected rising lengths"),
        ({"padding": "buckets", "buckets": [4, 11]}, "data.buckets = [4, 11]: expected rising lengths"),
        ({"padding": "buckets", "buckets": [0, 4]}, "data.buckets = [0, 4]: expected rising lengths"),
        ({"padding": "buckets", "buckets": ["a"]}, "data.buckets = ['a']: expected rising lengths"),
        ({"padding": "buckets", "buckets": 40}, "data.buckets = 40: expected rising lengths"),
        ({"buckets": 40}, "data.buckets = 40: expected rising lengths"),
        ({"buckets": "4,7"}, "data.buckets = 4,7: expected rising lengths"),
        ({"val_fraction": "most"}, "data.val_fraction = most: expected a fraction between 0 and 1; try 0.1"),
        ({"label_column": "text"}, "data.label_column = text: is in data.text_column too; name the column"),
        ({"vocab_size": 258}, "data.vocab_size = 258: byte-level BPE starts from the 256 bytes"),
        ({"seq_len": 1}, "data.seq_len = 1: no room for text; expected at least 2"),
        ({"delimiter": "tab"}, "data.delimiter = tab: expected one character"),
        ({"next_token": True}, "data.next_token = True: table has False; say data.next_token=False"),
        ({"pad_token": 5}, "data.pad_token = 5: table has 0; say data.pad_token=0"),
        ({"text_column": []}, "data.text_column = []: expected a column's name"),
        ({"val_path": "gone.tsv"}, "data.val_path = gone.tsv: no such file or folder; give a csv"),
        ({"path": "gone/folder.csv"}, "data.path = gone/folder.csv: no such file or folder; give a csv"),
        ({"path": None}, "data.path = null: no table; give a csv"),
        ({"path": __file__}, "is none of .csv, .tsv, .txt, .json, .jsonl, .parquet; give a csv"),
    ],
)
def test_a_setting_that_cannot_be_used_is_one_line_at_once(table, settings, said):
    with pytest.raises(ConfigError) as caught:
        table(**settings)
    (line,) = caught.value.complaints
    assert said in line


@pytest.mark.parametrize("padding", ["longest", "buckets", "fixed"])
def test_batches_are_a_function_of_seed_and_epoch_alone(table, padding):
    def batches(epoch=0, **settings):
        return epoch_inputs(set_up(table(padding=padding, buckets=[4, 7], **settings)), epoch)

    first = batches(seed=1)
    assert batches(seed=1) == first == batches(seed=1, num_workers=2)
    assert batches(seed=1, epoch=1) != first
    assert batches(seed=2) != first


def test_ranks_share_the_samples_of_a_global_batch(table):
    def texts(batches):
        return [sorted(tuple(token for token in row if token) for row in batch) for batch in batches]

    alone = epoch_inputs(set_up(table(batch_size=4)), 2)
    ranks = [epoch_inputs(set_up(table(batch_size=2), rank, 2), 2) for rank in range(2)]
    assert texts([list(itertools.chain(*batches)) for batches in zip(*ranks, strict=True)]) == texts(alone)
    val = [list(set_up(table(), rank, 2).val_dataloader()) for rank in range(2)]
    assert sum(len(targets) for batches in val for _, targets in batches) == 15


def test_without_validation_files_the_seed_picks_rows_and_the_tokens_are_learnt_without_them(table, tmp_path):
    (tmp_path / "dev.tsv").unlink()
    splits = [set_up(table(seed=seed, val_fraction=0.25, seq_len=64)) for seed in (0, 0, 1)]
    assert [(len(data.train_set), len(data.val_set)) for data in splits] == [(30, 10)] * 3
    assert splits[0].cache_folder == splits[1].cache_folder != splits[2].cache_folder
    both = [*train_samples(splits[0])[0], *decoded(splits[0], splits[0].val_set.__getitems__(range(10))[0])]
    assert sorted(both) == sorted(text for text, _ in reviews(40))


def test_a_text_cannot_contain_a_special_token(table, tmp_path):
    text = "[PAD] [CLS] <pad> <s> \0"
    (tmp_path / "train.tsv").write_text(lines([(text, "0"), ("fine", "1")] * 2))
    data = set_up(table(seq_len=64))
    inputs, _ = data.train_set.__getitems__([0])
    assert decoded(data, inputs) == [text]
    assert inputs[0, 1:].min() > 2


def test_a_table_is_encoded_once_and_known_by_its_content_and_settings(table, tmp_path, monkeypatch):
    first = set_up(table())
    (tmp_path / "copy").mkdir()
    for name in ("train.tsv", "dev.tsv"):
        (tmp_path / "copy" / name).write_bytes((tmp_path / name).read_bytes())
    same = [table(path=str(tmp_path / "copy")), table(padding="fixed", seed=5, batch_size=2)]
    different = [table(vocab_size=301), table(seq_len=9), table(val_path=str(tmp_path / "train.tsv"))]
    assert len({data.cache_folder for data in [first, *same]}) == 1
    assert len({data.cache_folder for data in [first, *different]}) == 4
    monkeypatch.setattr(bpe, "ByteLevelBPETokenizer", None)  # to train one would raise
    assert epoch_inputs(set_up(table())) == epoch_inputs(first)
    (tmp_path / "dev.tsv").write_text(lines(reviews(15, start=41)))
    with pytest.raises(TypeError):
        set_up(table())


def test_the_same_bytes_read_otherwise_have_a_cache_of_their_own(table, tmp_path):
    for suffix in (".tsv", ".csv"):
        (tmp_path / f"same{suffix}").write_text("good\t1,0\tfine,1\nbad\t0,1\tfoul,0\n")
    tsv, csv = str(tmp_path / "same.tsv"), str(tmp_path / "same.csv")
    as_tabs = {"path": tsv, "val_path": tsv, "columns": ["text", "label", "more"]}
    as_commas = {"path": csv, "val_path": csv, "columns": ["text", "label", "more"]}
    other_columns = {**as_tabs, "columns": ["more", "label", "text"]}
    assert set_up(table(**as_tabs)).cache_folder == set_up(table(**as_tabs)).cache_folder
    assert len({set_up(table(**settings)).cache_folder for settings in (as_tabs, as_commas, other_columns)}) == 3


def test_two_processes_may_encode_the_same_table_at_once(tmp_path):
    (tmp_path / "train.tsv").write_text(lines(reviews(400)))
    program = """
from trainkit.data.tables import Table
table = Table(path="train.tsv", columns=["text", "label"], batch_size=4, seq_len=16, cache_dir="cache")
together()
table.prepare_data()
table.setup("fit")
print(int(table.train_set.tokens.sum()), len(table.val_set))
"""
    one, other = forked.twice(program, tmp_path)
    assert one == other
    (cached,) = in_cache(tmp_path / "cache")  # one result and nothing unfinished
    arrays = [f"{split}-{what}.npy" for split in ("train", "val") for what in ("starts", "targets", "tokens")]
    assert sorted(file.name for file in cached.iterdir()) == sorted(
        ["classes.json", "contents.json", "tokenizer.json", *arrays]
    )


@pytest.fixture
def hub(monkeypatch):
    """Lets `datasets.load_dataset` give these splits, and returns with what it was called."""

    def serves(**splits: datasets.Dataset):
        calls = []
        monkeypatch.setattr(datasets, "load_dataset", lambda *args, **kw: calls.append(args) or splits)
        return calls

    return serves


def labelled(columns: dict[str, list], names: list[str] | None = None) -> datasets.Dataset:
    features = {name: datasets.Value("string") for name in columns}
    features |= {"idx": datasets.Value("int32"), "label": datasets.ClassLabel(names=names or ["no", "yes"])}
    num = len(columns["label"])
    return datasets.Dataset.from_dict({**columns, "idx": list(range(num))}, datasets.Features(features))


def test_glue_reads_the_columns_of_its_task_and_never_the_test_split(hub, tmp_path):
    mnli = {"premise": ["it rains", "the sun"], "hypothesis": ["wet", "dark"], "label": [0, 1]}
    names = ["entailment", "neutral", "contradiction"]
    withheld = labelled({**mnli, "label": [-1, -1]}, names)
    calls = hub(train=labelled(mnli, names), test_matched=withheld, validation_matched=labelled(mnli, names))
    settings = {"path": "nyu-mll/glue", "batch_size": 2, "vocab_size": 300, "cache_dir": str(tmp_path)}
    data = set_up(Glue(task="mnli", num_classes=3, **settings))
    assert train_samples(data) == (["it rains|wet", "the sun|dark"], [0, 1])
    assert calls[0] == ("nyu-mll/glue", "mnli")
    assert len(data.val_set) == 2
    hub(train=labelled(mnli, names), validation_matched=withheld)
    assert re.search(
        r"nyu-mll/glue \(.*\), row 1 has no label", complaint(Glue(task="mnli", num_classes=3, **settings))
    )
    assert "has 3 (entailment, neutral, contradiction" in complaint(Glue(task="mnli", **settings))
    with pytest.raises(ConfigError, match=r"data\.task = stsb: expected one of cola, sst2, mrpc"):
        Glue(task="stsb", **settings)
    assert len(TASKS) == 8


def test_a_hub_that_cannot_be_reached_is_one_line(tmp_path, monkeypatch, capfd):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("datasets.config.HF_HUB_OFFLINE", True)
    found = complaint(Table(path="stanfordnlp/sst2", batch_size=2, cache_dir=str(tmp_path)))
    assert re.fullmatch("data.path = stanfordnlp/sst2: .*; give a csv, .*, or owner/name of the hub", found)
    assert capfd.readouterr() == ("", "")


def test_bert_learns_a_table_and_its_accuracy_is_of_samples(compose, table, tmp_path):
    table()
    row = run(
        compose(
            "model=bert", "model.dim=16", "model.depth=1", "model.num_heads=2", "data=sst2", f"data.path={tmp_path}",
            f"data.cache_dir={tmp_path / 'cache'}", "data.seq_len=16", "data.vocab_size=300", "data.batch_size=4",
            "data.buckets=[4,8]", "data.padding=buckets", "compile.backend=aot_eager", "trainer.max_epochs=12",
            "optimizer.lr=3e-3", "check=true",
        )
    )  # fmt: skip
    assert (row.status, row.num_graph_breaks, row.check_passed, row.num_val_targets) == ("ok", 0, True, 15)
    assert row.val_accuracy * 15 == pytest.approx(round(row.val_accuracy * 15))
    assert row.val_accuracy > 0.9


def test_what_fits_a_table_and_what_does_not(compose, table, tmp_path):
    table()
    data = ("data=sst2", f"data.path={tmp_path}", f"data.cache_dir={tmp_path / 'cache'}", "data.vocab_size=300")
    for model in ("mini_transformer", "dynamic_mlp"):
        row = run(compose(f"model={model}", *data, "compile.mode=eager", "trainer.max_epochs=1", "data.batch_size=8"))
        assert (row.status, row.num_val_targets) == ("ok", 15)
    with pytest.raises(
        ConfigError, match=r"model = gpt2: does not fit data = sst2: gives logits .* for targets \(2,\)"
    ):
        run(compose("model=gpt2", "model.dim=16", "model.depth=1", "model.num_heads=2", *data))


def test_bert_sees_the_same_text_in_any_padding(compose, table, tmp_path):
    table()
    where = (f"data.path={tmp_path}", f"data.cache_dir={tmp_path / 'cache'}", "data.vocab_size=300", "data.buckets=[4]")
    logits = []
    for padding in ("longest", "buckets", "fixed"):
        sizes = ("model.dim=16", "model.depth=1", "model.num_heads=2", "data.seq_len=64", f"data.padding={padding}")
        config = compose("model=bert", "data=sst2", *where, *sizes)
        torch.manual_seed(0)
        data = set_up(build_data(config))
        net = build_model(config, data, select_devices(config)).eval()
        inputs, _ = data.val_set.__getitems__(range(4))
        logits.append(call(net, inputs))
    torch.testing.assert_close(logits[0], logits[1])
    torch.testing.assert_close(logits[0], logits[2])


def test_a_faulty_file_ends_train_py_with_one_line_and_status_2(train, tmp_path):
    (tmp_path / "train.tsv").write_text("good\t1\nbad\n")
    ended = train(
        "model=bert", "data=sst2", f"data.path={tmp_path}/train.tsv", f"data.cache_dir={tmp_path}/cache", "logger=none"
    )
    assert ended.returncode == 2
    (line,) = ended.stderr.splitlines()
    assert line.startswith(f"data.path = {tmp_path}/train.tsv: {tmp_path}/train.tsv, line 2 has no label; ")


def test_a_label_of_thousands_of_digits_is_shown_in_part(tmp_path):
    table = tmp_path / "t.csv"
    table.write_text("text,label\n" + f"words,{'9' * 5000}\n" * 4)
    line = complaint(Table(path=str(table), val_fraction=0.5, batch_size=2, cache_dir=str(tmp_path / "cache")))
    assert "has 1 (99" in line
    assert "99...); mend the labels, or say data.num_classes=1" in line
    assert len(line) < 500 + len(str(table))
