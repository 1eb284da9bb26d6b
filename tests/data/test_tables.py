"""Tables of texts: what a sequence is, how a batch is padded, and that a faulty row is one line that names it."""

import itertools
import json
import re
from pathlib import Path

import datasets
import numpy as np
import pytest
import tokenizers
import torch

from tests import forked
from tests.conftest import in_cache
from tests.data.test_data import epoch, on
from trainkit.config.errors import ConfigError
from trainkit.data import bpe
from trainkit.data.location import TABLE_READERS, Location
from trainkit.data.sequences import join_texts
from trainkit.data.tables import TASKS, Glue, Table
from trainkit.distributed.topology import select_devices
from trainkit.training.model import build_data, build_model
from trainkit.training.run import run

WORDS = ("dull", "bright", "plot", "cast", "scene", "a", "the", "of")


def reviews(num: int, start: int = 0) -> list[tuple[str, str]]:
    """Texts of 1 to 12 words with classes 0 and 1 in turn; the first word tells the class."""
    return [
        (" ".join([WORDS[n % 2], *(WORDS[2 + (n * k) % 6] for k in range(1, 1 + n % 12))]), str(n % 2))
        for n in range(start, start + num)
    ]


def lines(rows: list[tuple[str, ...]]) -> str:
    return "".join("\t".join(row) + "\n" for row in rows)


@pytest.fixture
def table(tmp_path):
    """Table over reviews in train.tsv and dev.tsv, cached in tmp_path; each setting can be given."""
    (tmp_path / "train.tsv").write_text(lines(reviews(40)))
    (tmp_path / "dev.tsv").write_text(lines(reviews(15, start=40)))
    settings = {"path": str(tmp_path), "columns": ["text", "label"], "batch_size": 4, "seq_len": 10}
    settings |= {"vocab_size": 300, "cache_dir": str(tmp_path / "cache")}
    return lambda **changes: Table(**{**settings, **changes})


def decoded(data: Table, inputs: torch.Tensor) -> list[str]:
    """The texts of a batch; | for the token between two of them."""
    tokenizer = tokenizers.Tokenizer.from_file(str(data.cache_folder / "tokenizer.json"))
    rows = [[token for token in row if token > 0] for row in inputs.tolist()]
    assert all(row[0] == 1 for row in rows)
    parts = [[list(part) for is_text, part in itertools.groupby(row[1:], lambda t: t > 2) if is_text] for row in rows]
    return ["|".join(tokenizer.decode([token - 3 for token in part]) for part in row) for row in parts]


def all_of(data: Table) -> tuple[list[str], list[int]]:
    inputs, targets = data.train_set.__getitems__(range(len(data.train_set)))
    return decoded(data, inputs), targets.tolist()


def complaint(data: Table | None = None, **settings) -> str:
    with pytest.raises(ConfigError) as caught:
        data.sample() if data else Table(**settings)
    (line,) = caught.value.complaints
    assert "\n" not in line
    return line


def test_sequences_are_the_texts_behind_a_first_token_and_targets_their_classes(table):
    data = on(table(seq_len=64))
    assert all_of(data) == ([text for text, _ in reviews(40)], [n % 2 for n in range(40)])
    inputs, targets = next(iter(data.val_dataloader()))
    assert decoded(data, inputs) == [text for text, _ in reviews(4, start=40)]
    assert (inputs.dtype, targets.dtype, targets.tolist()) == (torch.int64, torch.int64, [0, 1, 0, 1])


def test_longer_texts_are_cut_at_seq_len(table):
    whole, cut = on(table(seq_len=64)), on(table(seq_len=5))
    assert np.array_equal(np.diff(cut.train_set.starts), np.minimum(np.diff(whole.train_set.starts), 5))
    for n in range(40):
        inputs, _ = whole.train_set.__getitems__([n])
        assert torch.equal(cut.train_set.__getitems__([n])[0], inputs[:, :5])


@pytest.mark.parametrize(
    ("lengths", "seq_len", "kept"),
    [
        ((3,), 4, (3,)),
        ((9,), 4, (3,)),
        ((9, 2), 8, (4, 2)),
        ((2, 9), 8, (2, 4)),
        ((9, 9), 9, (3, 4)),
        ((0, 9), 4, (0, 2)),
    ],
)
def test_of_two_texts_the_longer_is_cut_first(lengths, seq_len, kept):
    parts = [np.arange(100 * n, 100 * n + length, dtype=np.uint32) for n, length in enumerate(lengths)]
    pieces = [np.array([1])] + [piece for part, num in zip(parts, kept, strict=True) for piece in (part[:num] + 3, [2])]
    assert join_texts(parts, seq_len).tolist() == np.concatenate(pieces[:-1]).tolist()


@pytest.mark.parametrize(
    ("padding", "expected"),
    [
        ("longest", lambda longest: longest),
        ("fixed", lambda longest: 10),
        ("buckets", lambda longest: 4 if longest <= 4 else 7 if longest <= 7 else 10),
    ],
)
def test_a_batch_is_as_long_as_its_padding_says(table, padding, expected):
    data = on(table(padding=padding, buckets=[4, 7], batch_size=2))
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


# Order


@pytest.mark.parametrize("padding", ["longest", "buckets", "fixed"])
def test_batches_are_a_function_of_seed_and_epoch_alone(table, padding):
    def batches(number=0, **settings):
        return epoch(on(table(padding=padding, buckets=[4, 7], **settings)), number)

    first = batches(seed=1)
    assert batches(seed=1) == first == batches(seed=1, num_workers=2)
    assert batches(seed=1, number=1) != first
    assert batches(seed=2) != first


def test_ranks_share_the_samples_of_a_global_batch(table):
    def texts(batches):
        return [sorted(tuple(token for token in row if token) for row in batch) for batch in batches]

    alone = epoch(on(table(batch_size=4)), 2)
    ranks = [epoch(on(table(batch_size=2), rank, 2), 2) for rank in range(2)]
    assert texts([list(itertools.chain(*batches)) for batches in zip(*ranks, strict=True)]) == texts(alone)
    val = [list(on(table(), rank, 2).val_dataloader()) for rank in range(2)]
    assert sum(len(targets) for batches in val for _, targets in batches) == 15


# Formats


def written(folder: Path, suffix: str, rows: list[tuple[str, str]]) -> Path:
    file = folder / f"written{suffix}"
    columns = {"text": [text for text, _ in rows], "label": [label for _, label in rows]}
    made = datasets.Dataset.from_dict(columns)
    if suffix in (".csv", ".tsv", ".txt"):
        made.to_csv(str(file), sep="," if suffix == ".csv" else "\t", quoting=0 if suffix == ".csv" else 3)
    elif suffix == ".parquet":
        made.to_parquet(str(file))
    else:
        made.to_json(str(file), lines=suffix == ".jsonl")
    return file


@pytest.mark.parametrize("suffix", sorted(TABLE_READERS))
def test_every_format_gives_the_same_texts_and_classes(table, tmp_path, suffix):
    rows = [("NA", "good"), ("so , so", "bad"), ("null", "good"), ("007", "bad"), ("é ü", "good")]
    rows += [('he said "no', "bad")] if suffix != ".csv" else [('two\nlines, and "quotes"', "bad")]
    file = written(tmp_path, suffix, rows)
    data = on(table(path=str(file), val_path=str(file), columns=None, batch_size=2, seq_len=64))
    assert all_of(data) == ([text for text, _ in rows], [int(label == "good") for _, label in rows])
    assert json.loads((data.cache_folder / "classes.json").read_text()) == ["bad", "good"]


def test_a_delimiter_and_column_names_can_be_given_and_the_name_of_a_file_is_no_pattern(table, tmp_path):
    for name in ("odd*[1].csv", "odder1.csv"):
        (tmp_path / name).write_text("7;first text;yes\n8;second text;no\n")
    file = str(tmp_path / "odd*[1].csv")
    data = on(table(path=file, val_path=file, columns=["id", "text", "label"], delimiter=";", batch_size=2, seq_len=64))
    assert all_of(data) == (["first text", "second text"], [1, 0])


def test_classes_that_are_numbers_are_sorted_as_numbers(table, tmp_path):
    (tmp_path / "numbers.tsv").write_text(lines([(f"text {n}", str(n)) for n in (10, 9, 2, -1)]))
    file = str(tmp_path / "numbers.tsv")
    data = on(table(path=file, val_path=file, num_classes=4, seq_len=64))
    assert all_of(data)[1] == [3, 2, 1, 0]


def test_empty_lines_and_carriage_returns_mean_nothing(table, tmp_path):
    (tmp_path / "odd.tsv").write_bytes(b"\xef\xbb\xbfa bad one\t0\r\n\r\na good one\t1\r\n\r\n")
    file = str(tmp_path / "odd.tsv")
    assert all_of(on(table(path=file, val_path=file, batch_size=2, seq_len=64))) == (
        ["a bad one", "a good one"],
        [0, 1],
    )


def test_two_texts_of_a_row_are_joined_and_one_may_be_empty(table, tmp_path):
    (tmp_path / "pairs.tsv").write_text("a\tb\tlabel\nfirst one\tsecond one\t0\nfirst two\t\t1\n")
    file = str(tmp_path / "pairs.tsv")
    data = on(table(path=file, val_path=file, columns=None, text_column=["a", "b"], batch_size=2, seq_len=64))
    assert all_of(data)[0] == ["first one|second one", "first two"]
    assert [row.tolist().count(2) for row in data.train_set.__getitems__([0, 1])[0]] == [1, 1]


def test_without_validation_files_the_seed_picks_rows_and_the_tokens_are_learnt_without_them(table, tmp_path):
    (tmp_path / "dev.tsv").unlink()
    splits = [on(table(seed=seed, val_fraction=0.25, seq_len=64)) for seed in (0, 0, 1)]
    assert [(len(data.train_set), len(data.val_set)) for data in splits] == [(30, 10)] * 3
    assert splits[0].cache_folder == splits[1].cache_folder != splits[2].cache_folder
    both = [*all_of(splits[0])[0], *decoded(splits[0], splits[0].val_set.__getitems__(range(10))[0])]
    assert sorted(both) == sorted(text for text, _ in reviews(40))


def test_a_text_cannot_contain_a_special_token(table, tmp_path):
    text = "[PAD] [CLS] <pad> <s> \0"
    (tmp_path / "train.tsv").write_text(lines([(text, "0"), ("fine", "1")] * 2))
    data = on(table(seq_len=64))
    inputs, _ = data.train_set.__getitems__([0])
    assert decoded(data, inputs) == [text]
    assert inputs[0, 1:].min() > 2


# The cache


def test_a_table_is_encoded_once_and_known_by_its_content_and_settings(table, tmp_path, monkeypatch):
    first = on(table())
    (tmp_path / "copy").mkdir()
    for name in ("train.tsv", "dev.tsv"):
        (tmp_path / "copy" / name).write_bytes((tmp_path / name).read_bytes())
    same = [table(path=str(tmp_path / "copy")), table(padding="fixed", seed=5, batch_size=2)]
    different = [table(vocab_size=301), table(seq_len=9), table(val_path=str(tmp_path / "train.tsv"))]
    assert len({data.cache_folder for data in [first, *same]}) == 1
    assert len({data.cache_folder for data in [first, *different]}) == 4
    monkeypatch.setattr(bpe, "ByteLevelBPETokenizer", None)  # to train one would raise
    assert epoch(on(table())) == epoch(first)
    (tmp_path / "dev.tsv").write_text(lines(reviews(15, start=41)))
    with pytest.raises(TypeError):
        on(table())


def test_the_same_bytes_read_otherwise_have_a_cache_of_their_own(table, tmp_path):
    for suffix in (".tsv", ".csv"):
        (tmp_path / f"same{suffix}").write_text("good\t1,0\tfine,1\nbad\t0,1\tfoul,0\n")
    tsv, csv = str(tmp_path / "same.tsv"), str(tmp_path / "same.csv")
    as_tabs = {"path": tsv, "val_path": tsv, "columns": ["text", "label", "more"]}
    as_commas = {"path": csv, "val_path": csv, "columns": ["text", "label", "more"]}
    other_columns = {**as_tabs, "columns": ["more", "label", "text"]}
    assert on(table(**as_tabs)).cache_folder == on(table(**as_tabs)).cache_folder
    assert len({on(table(**settings)).cache_folder for settings in (as_tabs, as_commas, other_columns)}) == 3


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
    assert sorted(file.name for file in cached.iterdir()) == sorted(["classes.json", "tokenizer.json", *arrays])


# Mistakes in the files


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"good\t1\nbad\n", "{file}, line 2 has no label; mend it or remove it"),
        (b"good\t1\n\nbad\t\n", "{file}, line 3 has no label; mend it or remove it"),
        (b"good\t1\n \t0\n", "{file}, line 2 has no text; mend it or remove it"),
        (b"good\t1\t9\nbad\t0\n", "{file}, line 1 has more fields than columns; mend it or remove it"),
        (b"good\t1\nbad\t0\t8\t9\n", "{file}: .*in line 2, .*mend it or leave it out"),
        (b"good\t1\nb\xffd\t0\n", "{file} is not UTF-8 .byte 8. in line 2; convert it or leave it out"),
        (b"", "{file} has no rows; give"),
        (b"good\t1\nbad\t0\nfine\tO\n", "has 3 .0, 1, O; O first in {file}, line 3.; mend the labels, or say"),
        (b"good\t1\nfine\t1\n", "has 1 .1.; mend the labels, or say data.num_classes=1"),
    ],
)
def test_a_faulty_row_is_one_line_that_names_it_and_nothing_is_cached(table, tmp_path, content, said):
    file = tmp_path / "train.tsv"
    file.write_bytes(content)
    assert re.search(said.replace("{file}", re.escape(str(file))), complaint(table()))
    assert in_cache(tmp_path / "cache") == []


def test_a_label_that_training_has_not_is_named_with_its_line(table, tmp_path):
    (tmp_path / "dev.tsv").write_text("fine\t0\nodd\t2\n")
    line = f"data.path = {tmp_path}: {tmp_path}/dev.tsv, line 2 has the label 2, and training has 0, 1; "
    assert complaint(table()).startswith(line)
    assert in_cache(tmp_path / "cache") == []


@pytest.mark.parametrize(
    ("suffix", "content", "said"),
    [
        (".jsonl", b'{"text": "a", "label": 1}\n{"text": "b"}\n', "{file}, row 2 has no label; mend it or remove it"),
        (".jsonl", b'{"text": "a", "label": 1}\n{"text": "b', "data.path = {file}: JSON parse error: .*; mend it"),
        (".json", b'[{"text": "a", "label": 0.5}]', "data.label_column = label: {file} has float64 in it, not classes"),
        (".json", b'[{"text": 7, "label": 1}]', "data.text_column = text: {file} has int64 in it, not text"),
        (".parquet", b"PAR1 cut off", "data.path = {file}: .*; mend it or leave it out"),
        (".csv", b'text,label\n"a, b",1\n"c,0\n', "data.path = {file}: .*EOF inside string.*; mend it or leave it out"),
        (".csv", b"text,label\na,1\nb,\n", "{file}, row 2 has no label; mend it or remove it"),
        (".csv", b"text,class\na,1\nb,0\n", "data.label_column = label: {file} has the columns text, class; name one"),
        (".csv", b"text,label\n", "{file} has no rows; give"),
    ],
)
def test_other_files_that_cannot_be_read_are_named_too(table, tmp_path, suffix, content, said):
    file = tmp_path / f"bad{suffix}"
    file.write_bytes(content)
    found = complaint(table(path=str(file), columns=None))
    assert re.search(said.replace("{file}", re.escape(str(file))), found), found
    assert in_cache(tmp_path / "cache") == []


def test_a_folder_without_training_files_says_so(table, tmp_path):
    (tmp_path / "train.tsv").unlink()
    assert "nothing to train on in it; give a csv" in complaint(table())


# The hub, which no test can reach: what `datasets` would bring from there


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


def test_a_name_of_the_hub_is_one_and_a_path_is_not(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own" / "data").mkdir(parents=True)
    for path in ("stanfordnlp/sst2", "nyu-mll/glue"):
        assert Location("data.path", path, "").is_on_hub
    for path in ("own/data", "own/train.tsv", "sst2", "/a/b", "../up", "a/b/c", "~/x", ""):
        assert not Location("data.path", path, "").is_on_hub


def test_glue_reads_the_columns_of_its_task_and_never_the_test_split(hub, tmp_path):
    mnli = {"premise": ["it rains", "the sun"], "hypothesis": ["wet", "dark"], "label": [0, 1]}
    names = ["entailment", "neutral", "contradiction"]
    withheld = labelled({**mnli, "label": [-1, -1]}, names)
    calls = hub(train=labelled(mnli, names), test_matched=withheld, validation_matched=labelled(mnli, names))
    settings = {"path": "nyu-mll/glue", "batch_size": 2, "vocab_size": 300, "cache_dir": str(tmp_path)}
    data = on(Glue(task="mnli", num_classes=3, **settings))
    assert all_of(data) == (["it rains|wet", "the sun|dark"], [0, 1])
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


# A run


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
        data = on(build_data(config))
        logits.append(build_model(config, data, select_devices(config)).eval()(data.val_set.__getitems__(range(4))[0]))
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
