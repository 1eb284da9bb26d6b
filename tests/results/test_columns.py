"""Columns carry their own facts, and loggers and tables read them."""

import pytest

from trainkit.results.columns import OverRanks, Section, columns, headings
from trainkit.results.epoch import EpochRecord, logged_values
from trainkit.results.row import COLUMN_GROUPS, Row


@pytest.mark.parametrize("record", [Row, EpochRecord])
def test_every_field_is_a_column_with_one_plain_sentence_of_help(record):
    for name, described in columns(record).items():
        assert described.name == name
        assert described.help.endswith((".", "`.")), name


def test_the_groups_are_the_whole_row_in_its_order():
    names: list[str] = []
    for group in COLUMN_GROUPS:
        names += columns(group)
    assert names == list(columns(Row))


def test_units_agree_with_names():
    for name, described in columns(Row).items():
        if name.endswith("_bytes"):
            assert described.unit == "bytes", name
        if name.endswith("_s") and not name.endswith("_per_s"):
            assert described.unit == "s", name
        if "_time_ms" in name:
            assert described.unit == "ms", name


def test_values_of_ranks_are_reduced_as_the_column_says():
    assert OverRanks.RANK_0.reduce([2, 3]) == 2
    assert OverRanks.LARGEST.reduce([None, 3.0, 2.0]) == 3.0
    assert OverRanks.SUM.reduce([2, 3]) == 5
    assert OverRanks.MEAN.reduce([2, 3]) == 2.5
    assert OverRanks.ANY.reduce([False, True]) is True
    assert OverRanks.ALL.reduce([False, True]) is False
    assert OverRanks.LARGEST.reduce([None, None]) is None


def test_a_table_shows_its_columns_in_the_order_of_the_row():
    assert list(headings(Row, Section.MEMORY))[:3] == [
        "peak_allocated_bytes", "peak_reserved_bytes", "peak_device_bytes",
    ]  # fmt: skip


def test_loggers_get_measured_values_and_memory_in_gib():
    record = EpochRecord(
        epoch=3, train_time_s=2.0, compile_time_s=0.5, num_steps=10, num_samples=640, samples_per_s=900.0,
        peak_allocated_bytes=2**30, peak_reserved_bytes=2**31, peak_device_bytes=2**29, train_loss=0.25,
    )  # fmt: skip
    assert logged_values(record) == {
        "epoch": 3,
        "epoch/train_time_s": 2.0,
        "epoch/compile_time_s": 0.5,
        "epoch/samples_per_s": 900.0,
        "epoch/peak_allocated_gib": 1.0,
        "epoch/peak_reserved_gib": 2.0,
        "epoch/peak_device_gib": 0.5,
        "train/loss": 0.25,
    }
