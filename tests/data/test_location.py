"""Locations: what is a file or a folder here, and what a data set of the hub."""

from trainkit.data.location import DataLocation


def test_a_name_of_the_hub_is_one_and_a_path_is_not(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own" / "data").mkdir(parents=True)
    for path in ("stanfordnlp/sst2", "nyu-mll/glue"):
        assert DataLocation("data.path", path, "").is_on_hub
    for path in ("own/data", "own/train.tsv", "sst2", "/a/b", "../up", "a/b/c", "~/x", ""):
        assert not DataLocation("data.path", path, "").is_on_hub
