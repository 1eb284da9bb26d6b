"""Batches that change their shape: which sizes come when."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.conftest import parameters, same
from trainkit.data.shapes import PADDINGS, Padding, SizeSchedule
from trainkit.data.synthetic import Synthetic
from trainkit.results.files import read_epochs
from trainkit.training.run import run

IMAGES = ("model=simple_net", "model.width=8", "data=synthetic", "data.image_size=4", "trainer.limit_val_batches=0")


def test_the_orders_of_a_schedule():
    assert SizeSchedule("x", [1, 2, 3], "cycle", 0).epoch_sizes(0, 7) == [1, 2, 3, 1, 2, 3, 1]
    assert SizeSchedule("x", [1, 2, 3], "list", 0).epoch_sizes(0, 7) == [1, 1, 1, 2, 2, 3, 3]
    drawn = SizeSchedule("x", [8, 2, 5], "random", 0)
    assert set(drawn.epoch_sizes(0, 500)) == set(range(2, 9))
    assert drawn.epoch_sizes(3, 50) == SizeSchedule("x", [2, 8], "random", 0).epoch_sizes(3, 50)
    for other in (SizeSchedule("y", [2, 8], "random", 0), SizeSchedule("x", [2, 8], "random", 1)):
        assert other.epoch_sizes(3, 50) != drawn.epoch_sizes(3, 50)
    assert drawn.epoch_sizes(4, 50) != drawn.epoch_sizes(3, 50)


def test_a_length_is_filled_up_to_the_smallest_bucket_that_holds_it():
    buckets = [8, 16]
    longest, bucketed, fixed = (Padding(kind, buckets, 32) for kind in ("longest", "buckets", "fixed"))
    assert [longest.padded(n) for n in (1, 8, 9)] == [1, 8, 9]
    assert [bucketed.padded(n) for n in (1, 8, 9, 16, 17, 32)] == [8, 8, 16, 16, 32, 32]
    assert [fixed.padded(n) for n in (1, 32)] == [32, 32]


@given(
    kind=st.sampled_from(PADDINGS), buckets=st.sets(st.integers(1, 64)), seq_len=st.just(64), length=st.integers(1, 64)
)
def test_a_padded_length_is_the_smallest_possible_one_that_holds_the_sequence(kind, buckets, seq_len, length):
    padding = Padding(kind, sorted(buckets), seq_len)
    padded = padding.padded(length)
    assert length <= padded <= seq_len
    assert padded == min(possible for possible in padding.lengths if possible >= length)


def shapes(**settings) -> list[tuple[int, ...]]:
    data = Synthetic(
        inputs="tokens", batch_size=4, seq_len=32, num_batches=6, next_token=True, num_classes=1024, **settings
    )
    data.setup("fit")
    return [tuple(inputs.shape) for inputs, targets in data.train_dataloader() if inputs.shape == targets.shape]


def test_batches_have_the_sizes_of_the_schedules():
    assert shapes() == [(4, 32)] * 6
    assert shapes(batch_sizes=[2, 8]) == [(2, 32), (8, 32)] * 3
    assert shapes(seq_lens=[5, 9, 32], order="list") == [(4, 5)] * 2 + [(4, 9)] * 2 + [(4, 32)] * 2
    assert shapes(seq_lens=[5, 9, 32], padding="buckets", buckets=[8, 16]) == [(4, 8), (4, 16), (4, 32)] * 2
    assert shapes(seq_lens=[5, 9, 32], batch_sizes=[1, 2], padding="fixed") == [(1, 32), (2, 32)] * 3


def test_what_is_filled_up_is_token_0_and_the_rest_is_as_it_was():
    data = Synthetic(inputs="tokens", batch_size=4, seq_len=8, seq_lens=[3], padding="fixed", num_distinct=1)
    data.setup("fit")
    inputs, targets = next(iter(data.train_dataloader()))
    whole = data.train_dataloader().batches[0][0]
    assert torch.equal(inputs[:, :3], whole[:, :3])
    assert not inputs[:, 3:].any()
    assert targets.shape == (4,)


def test_random_sizes_are_a_function_of_the_epoch_and_a_resumed_run_goes_on_with_them(compose, tmp_path):
    words = (*IMAGES, "data.batch_sizes=[2,9]", "data.order=random", "data.num_batches=8", "compile.mode=eager")
    run(compose(*words, "trainer.max_epochs=4", run_dir=tmp_path / "whole"))
    run(compose(*words, "trainer.max_epochs=2", run_dir=tmp_path / "parts"))
    run(compose(*words, "trainer.max_epochs=4", "ckpt_path=last", run_dir=tmp_path / "parts"))
    whole, parts = ([epoch.num_samples for epoch in read_epochs(tmp_path / name)] for name in ("whole", "parts"))
    assert whole == [sum(SizeSchedule("batch_size", [2, 9], "random", 0).epoch_sizes(n, 8)) for n in range(4)]
    assert parts[-2:] == whole[-2:]
    assert same(parameters(tmp_path / "parts"), parameters(tmp_path / "whole"))


def test_samples_are_counted_as_they_come_and_the_loss_is_of_each_alike(compose, tmp_path):
    words = (*IMAGES, "data.batch_sizes=[2,30]", "data.order=list", "data.num_batches=60", "compile.mode=eager")
    words = (*words, "trainer.max_epochs=1", "optimizer.lr=1e-12", "data.num_distinct=1")
    row = run(compose(*words))
    (record,) = read_epochs(tmp_path / "run")
    assert record.num_samples == 30 * 2 + 30 * 30
    # Of the steady steps, by their own sizes: with all of 64 it would be that many more.
    assert row.samples_per_s * row.step_time_ms_p50 / 1e3 < 31
    more = {"fewer": "trainer.limit_train_batches=31", "large": "data.batch_sizes=[30]"}
    fewer, large = (run(compose(*words, word, run_dir=tmp_path / name)).train_loss for name, word in more.items())
    assert row.train_loss == pytest.approx(((30 * 2 + 30) * fewer + 29 * 30 * large) / (30 * 32), rel=1e-5)
