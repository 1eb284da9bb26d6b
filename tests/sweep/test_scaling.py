"""The numbers of processes of a sweep, and the batch of each."""

import pytest
from omegaconf import OmegaConf

from trainkit.config.errors import ConfigError
from trainkit.sweep.scaling import parse_process_counts, split_batch


@pytest.mark.parametrize(
    ("value", "counts"),
    [
        (None, [None]),
        (2, [2]),
        ("2", [2]),
        ("1, 2,4", [1, 2, 4]),
        ([2, 1], [2, 1]),
        (OmegaConf.create(["1", 8]), [1, 8]),
    ],
)
def test_one_or_several_numbers_of_processes_are_read_in_their_order(value, counts):
    assert parse_process_counts(value) == counts


@pytest.mark.parametrize("value", ["", "two", "1,", 0, -1, 1.5, True, "1,1", [1, None], "1-2"])
def test_no_number_of_processes_is_one_line(value):
    with pytest.raises(ConfigError, match=r"hydra\.launcher\.nproc_per_node = .*: expected a number of processes, or"):
        parse_process_counts(value)


def test_strong_scaling_gives_each_process_its_share_of_the_batch():
    overrides = ["compile.mode=eager", "data.batch_size=64", "data.num_batches=5"]
    shared = ["compile.mode=eager", "data.num_batches=5"]
    assert split_batch(overrides, {"batch_size": 64}, 1) == [*shared, "data.batch_size=64"]
    assert split_batch(overrides, {"batch_size": 64}, 4) == [*shared, "data.batch_size=16"]
    assert split_batch([], {"batch_size": 64}, 2) == ["data.batch_size=32"]  # of an experiment's file


@pytest.mark.parametrize(
    ("data", "num_processes", "complaint"),
    [
        ({"batch_size": 64}, 3, "data.batch_size = 64: 3 processes cannot share it equally; try data.batch_size=63"),
        ({"batch_size": 2}, 3, "data.batch_size = 2: 3 processes cannot share it equally; try data.batch_size=3"),
        ({"batch_size": 8}, None, "strong: splits the batch over processes; set hydra.launcher.nproc_per_node with it"),
        ({"batch_size": 8, "batch_sizes": [4, 8]}, 2, "strong: splits one data.batch_size; leave data.batch_sizes out"),
    ],
)
def test_a_batch_that_cannot_be_split_is_one_line(data, num_processes, complaint):
    with pytest.raises(ConfigError, match=f"{complaint}$"):
        split_batch([], data, num_processes)
