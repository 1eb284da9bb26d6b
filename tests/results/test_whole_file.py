"""A file is replaced as a whole."""

from pathlib import Path

import pytest

from trainkit.results.whole_file import replace_text


def test_a_file_is_replaced_and_nothing_stays_beside_it(tmp_path: Path):
    path = tmp_path / "race.time"
    replace_text(path, "1.0")
    replace_text(path, "2.0")
    assert path.read_text() == "2.0"
    assert list(tmp_path.iterdir()) == [path]


def test_a_write_that_fails_leaves_what_was_there_and_nothing_beside_it(tmp_path: Path):
    path = tmp_path / "folder.json"
    path.mkdir()
    with pytest.raises(OSError, match="directory"):
        replace_text(path, "{}")
    assert list(tmp_path.iterdir()) == [path]
