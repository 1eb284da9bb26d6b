"""Rows from files: every format gives the same rows, and a faulty row is one line that names it."""

import json
import os
import re
from pathlib import Path

import datasets
import pytest

from tests.conftest import in_cache
from tests.data.conftest import complaint, lines, set_up, train_samples
from trainkit.config.errors import ConfigError
from trainkit.data.location import TABLE_READERS
from trainkit.data.tables import Table


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
    data = set_up(table(path=str(file), val_path=str(file), columns=None, batch_size=2, seq_len=64))
    assert train_samples(data) == ([text for text, _ in rows], [int(label == "good") for _, label in rows])
    assert json.loads((data.cache_folder / "classes.json").read_text()) == ["bad", "good"]


def test_a_delimiter_and_column_names_can_be_given_and_the_name_of_a_file_is_no_pattern(table, tmp_path):
    for name in ("odd*[1].csv", "odder1.csv"):
        (tmp_path / name).write_text("7;first text;yes\n8;second text;no\n")
    file = str(tmp_path / "odd*[1].csv")
    data = set_up(
        table(path=file, val_path=file, columns=["id", "text", "label"], delimiter=";", batch_size=2, seq_len=64)
    )
    assert train_samples(data) == (["first text", "second text"], [1, 0])


def test_classes_that_are_numbers_are_sorted_as_numbers(table, tmp_path):
    (tmp_path / "numbers.tsv").write_text(lines([(f"text {n}", str(n)) for n in (10, 9, 2, -1)]))
    file = str(tmp_path / "numbers.tsv")
    data = set_up(table(path=file, val_path=file, num_classes=4, seq_len=64))
    assert train_samples(data)[1] == [3, 2, 1, 0]


def test_labels_of_thousands_of_digits_are_words(table, tmp_path):
    labels = "9" * 5_000, "1" * 5_000
    (tmp_path / "long.tsv").write_text(lines([(f"text {label[0]}", label) for label in labels]))
    file = str(tmp_path / "long.tsv")
    data = set_up(table(path=file, val_path=file, num_classes=2, seq_len=64))
    assert train_samples(data)[1] == [1, 0]


def test_empty_lines_and_carriage_returns_mean_nothing(table, tmp_path):
    (tmp_path / "odd.tsv").write_bytes(b"\xef\xbb\xbfa bad one\t0\r\n\r\na good one\t1\r\n\r\n")
    file = str(tmp_path / "odd.tsv")
    assert train_samples(set_up(table(path=file, val_path=file, batch_size=2, seq_len=64))) == (
        ["a bad one", "a good one"],
        [0, 1],
    )


def test_two_texts_of_a_row_are_joined_and_one_may_be_empty(table, tmp_path):
    (tmp_path / "pairs.tsv").write_text("a\tb\tlabel\nfirst one\tsecond one\t0\nfirst two\t\t1\n")
    file = str(tmp_path / "pairs.tsv")
    data = set_up(table(path=file, val_path=file, columns=None, text_column=["a", "b"], batch_size=2, seq_len=64))
    assert train_samples(data)[0] == ["first one|second one", "first two"]
    assert [row.tolist().count(2) for row in data.train_set.__getitems__([0, 1])[0]] == [1, 1]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"good\t1\nbad\n", "{file}, line 2 has no label; fix it or remove it"),
        (b"good\t1\n\nbad\t\n", "{file}, line 3 has no label; fix it or remove it"),
        (b"good\t1\n \t0\n", "{file}, line 2 has no text; fix it or remove it"),
        (b"good\t1\t9\nbad\t0\n", "{file}, line 1 has more fields than columns; fix it or remove it"),
        (b"good\t1\nbad\t0\t8\t9\n", "{file}: .*in line 2, .*fix it or leave it out"),
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
        (".jsonl", b'{"text": "a", "label": 1}\n{"text": "b"}\n', "{file}, row 2 has no label; fix it or remove it"),
        (".jsonl", b'{"text": "a", "label": 1}\n{"text": "b', "data.path = {file}: JSON parse error: .*; fix it"),
        (".json", b'[{"text": "a", "label": 0.5}]', "data.label_column = label: {file} has float64 in it, not classes"),
        (".json", b'[{"text": 7, "label": 1}]', "data.text_column = text: {file} has int64 in it, not text"),
        (".parquet", b"PAR1 cut off", "data.path = {file}: .*; fix it or leave it out"),
        (".csv", b'text,label\n"a, b",1\n"c,0\n', "data.path = {file}: .*EOF inside string.*; fix it or leave it out"),
        (".csv", b"text,label\na,1\nb,\n", "{file}, row 2 has no label; fix it or remove it"),
        (".csv", b"text,class\na,1\nb,0\n", "data.label_column = label: {file} has the columns text, class; name one"),
        (".csv", b"text,label\n", "{file} has no rows; give"),
        (".json", b"[" * 5_000 + b"]" * 5_000, "data.path = {file}: {file} nests more than 100 levels deep; fix it"),
        (".jsonl", b'{"text": "a", "label": ' + b"[" * 100_000, "{file} nests more than 100 levels deep; fix it"),
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


@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo], ids=["folder", "pipe"])
@pytest.mark.parametrize("path", ["data", "data/train.csv"])
def test_what_is_no_regular_file_is_one_line_and_not_waited_for(make, path, tmp_path):
    (tmp_path / "data").mkdir()
    make(tmp_path / "data" / "train.csv")
    with pytest.raises(
        ConfigError, match=r"train\.csv is no regular file; leave it out|no training|nothing|no rows|is none"
    ):
        set_up(Table(path=str(tmp_path / path), batch_size=2, cache_dir=str(tmp_path / "cache")))


def test_a_file_whose_content_cannot_be_read_is_one_line(tmp_path):
    (tmp_path / "train.csv").symlink_to("/proc/self/mem")
    with pytest.raises(ConfigError, match=r"train\.csv cannot be read"):
        Table(path=str(tmp_path), batch_size=2, cache_dir=str(tmp_path / "cache"))
