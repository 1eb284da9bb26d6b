"""What a batch holds does not depend on who made the iterator, when, or on how many workers."""

import random
import subprocess
import sys

import numpy as np
import pytest
import torch
from lightning.fabric.utilities.data import _set_sampler_epoch
from torch.utils.data import Dataset

from tests.data.conftest import set_up
from tests.processes import wait_until
from trainkit.config.errors import ConfigError
from trainkit.data.loader import EpochLoader, EpochPlan
from trainkit.data.module import DataModule

RANKS_AND_EPOCHS = [(0, 0), (0, 1), (1, 0)]


class Noisy(Dataset):
    """Each sample is its number and random numbers of three kinds, as an augmentation draws them."""

    def __len__(self):
        return 24

    def __getitem__(self, index):
        drawn = [index, random.random(), np.random.rand(), float(torch.rand(()))]
        return torch.tensor(drawn, dtype=torch.float64), index


def noisy(rank=0, **settings):
    data = DataModule(batch_size=2, inputs="tokens", seed=3, **settings)
    data.train_set = data.val_set = Noisy()
    return set_up(data, rank, 2)


def batches(loader, epoch=0):
    _set_sampler_epoch(loader, epoch)
    return [inputs.tolist() for inputs, _ in loader]


@pytest.fixture(scope="module")
def expected():
    """The batches of each rank and epoch, from a fresh loader with one worker."""
    by_place = {}
    for rank, epoch in RANKS_AND_EPOCHS:
        by_place[rank, epoch] = batches(noisy(rank, num_workers=1).train_dataloader(), epoch)
    return by_place


def test_batches_and_their_random_numbers_differ_by_rank_and_epoch(expected):
    drawn = [sample[1:] for place in expected.values() for batch in place for sample in batch]
    assert len(drawn) == 3 * 12
    assert len({tuple(numbers) for numbers in drawn}) == len(drawn)


@pytest.mark.parametrize("num_workers", [1, 2])
def test_an_iterator_that_was_made_before_the_epoch_was_set_gives_the_batches_of_the_epoch(num_workers, expected):
    loader = noisy(num_workers=num_workers).train_dataloader()
    early = iter(loader)
    _set_sampler_epoch(loader, 1)
    assert [inputs.tolist() for inputs, _ in early] == expected[0, 1]


def test_the_epochs_before_change_nothing(expected):
    loader = noisy(num_workers=2).train_dataloader()
    next(iter(loader))  # broken off, with other batches on their way
    assert batches(loader, 0) == expected[0, 0]
    assert batches(loader, 1) == expected[0, 1]


@pytest.mark.parametrize("num_workers", [0, 2])
def test_skipped_batches_are_left_out_once(num_workers, expected):
    loader = noisy(num_workers=num_workers).train_dataloader()
    loader.skip(4)
    rest = batches(loader, 1)
    numbers = [[sample[0] for sample in batch] for batch in rest]
    assert numbers == [[sample[0] for sample in batch] for batch in expected[0, 1][4:]]
    if num_workers:
        assert rest == expected[0, 1][4:]
    assert len(batches(loader, 1)) == 6


def test_each_validation_draws_the_same_numbers():
    loader = noisy(num_workers=1).val_dataloader()
    first, second = ([inputs.tolist() for inputs, _ in loader] for _ in range(2))
    assert first == second


class Unsendable:
    def __reduce__(self):
        raise ArithmeticError("cannot be sent")


def loader_of(dataset):
    return EpochLoader(dataset, EpochPlan(range(2), 1, False, "0"), lambda samples: samples, 1, pin_memory=False)


def test_a_batch_that_a_worker_cannot_hand_on_is_an_error_and_no_endless_wait():
    with pytest.raises(ArithmeticError, match="cannot be sent"):
        next(iter(loader_of([Unsendable(), Unsendable()])))


def test_workers_without_room_for_what_they_share_are_refused(monkeypatch):
    def make_lock(**settings):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("multiprocessing.synchronize.Lock", make_lock)
    with pytest.raises(ConfigError, match=r"data\.num_workers = 1: workers cannot share memory \(No space left on dev"):
        loader_of([0, 1])


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # of torch's iterator, half made
def test_workers_that_have_no_room_when_they_start_are_refused_too(monkeypatch):
    def make_queue():
        raise OSError(28, "No space left on device")

    loader = loader_of([0, 1])
    monkeypatch.setattr("torch.multiprocessing.Queue", make_queue)
    with pytest.raises(ConfigError, match=r"data\.num_workers = 1: workers cannot share memory \(No space left on dev"):
        next(iter(loader))


UNSHARED = """
import torch
from trainkit.config.errors import ConfigError
from trainkit.data.loader import EpochLoader, EpochPlan
samples = torch.zeros(4, 250_000)
try:
    list(EpochLoader(samples, EpochPlan(range(4), 1, False, "0"), torch.cat, 1, pin_memory=False))
except ConfigError as error:
    print(error)
"""


def test_a_worker_without_room_for_a_batch_is_told_in_one_line():
    small = "mount -t tmpfs -o size=200k tmpfs /dev/shm 2>/dev/null || exit 77; exec "
    # As root of a user and mounts of its own: the system's /dev/shm stays.
    command = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", small + '"$0" -c "$1"']
    try:
        done = subprocess.run([*command, sys.executable, UNSHARED], capture_output=True, text=True, timeout=120)
    except FileNotFoundError:
        pytest.skip("no unshare here")
    if done.returncode == 77 or done.stderr.startswith("unshare:"):
        pytest.skip("the system lets nobody mount")
    assert done.stderr == ""
    assert done.stdout == (
        "data.num_workers = 1: workers cannot share memory (No space left on device); "
        "make /dev/shm larger (docker run --shm-size=8g), or set data.num_workers=0\n"
    )


KILLED = """
import multiprocessing, os, signal, sys
import torch
from trainkit.data.loader import EpochLoader, EpochPlan
loader = EpochLoader(torch.zeros(4, 2), EpochPlan(range(4), 1, False, "0"), torch.cat, 2, pin_memory=False)
batches = iter(loader)
next(batches)
next(batches)
print(os.listdir(os.environ["TMPDIR"]), flush=True)
if sys.argv[1] == "KILL after the workers":
    del batches
if sys.argv[1].startswith("KILL"):
    os.kill(os.getpid(), signal.SIGKILL)
for worker in multiprocessing.active_children():
    worker.kill()
"""


@pytest.mark.parametrize("ended", ["KILL", "KILL after the workers", "workers"])
def test_nothing_is_left_of_what_workers_share(ended, tmp_path, monkeypatch):
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    command = [sys.executable, "-c", KILLED, ended]
    done = subprocess.run(command, cwd=tmp_path, check=False, capture_output=True, text=True)
    assert done.stdout == "[]\n"  # what is not there cannot be left behind
    wait_until(lambda: not list(temporary.iterdir()))
