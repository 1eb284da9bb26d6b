"""Clocks add up, and a profiling epoch splits the step."""

import torch

from trainkit.metrics import timer
from trainkit.metrics.timer import Stopwatch
from trainkit.training.run import run


def test_a_profiling_epoch_splits_the_step_and_changes_nothing_else(compose, tmp_path, monkeypatch):
    from trainkit.training.objective import Objective

    plain, now_s = Objective.forward, 0.0

    def slow(self, *inputs):
        nonlocal now_s
        now_s += 0.02 if self.training else 0
        return plain(self, *inputs)

    def mark(stream=None) -> float:
        nonlocal now_s
        now_s += 1e-5
        return now_s

    monkeypatch.setattr(Objective, "forward", slow)
    monkeypatch.setattr(timer, "mark", mark)
    asked = (
        "compile.mode=eager",
        "trainer.max_epochs=2",
        "trainer.accumulate_grad_batches=4",
    )  # of 22 batches: the last step has two
    rows = [
        run(compose(*asked, f"meters.breakdown={on}", run_dir=tmp_path / f"breakdown-{on}")) for on in ("true", "false")
    ]
    assert rows[0].forward_time_ms_p50 >= 80  # four batches a step
    assert 0 < rows[0].optimizer_time_ms_p50 < 20  # no forward in it
    assert (rows[1].forward_time_ms_p50, rows[1].backward_time_ms_p50, rows[1].optimizer_time_ms_p50) == (None,) * 3
    for name in ("num_steps", "num_epochs", "train_loss", "val_loss", "val_accuracy"):
        assert getattr(rows[0], name) == getattr(rows[1], name), name
    states = [torch.load(tmp_path / f"breakdown-{on}/checkpoints/last.ckpt") for on in ("true", "false")]
    assert states[0]["global_step"] == states[1]["global_step"]


def test_a_stopwatch_adds_up_and_forgives_a_second_stop(monkeypatch):
    now = iter([1.0, 3.0, 10.0, 11.0])
    monkeypatch.setattr(timer.time, "perf_counter", lambda: next(now))
    watch = Stopwatch()
    watch.start()
    watch.stop()
    watch.stop()
    watch.start()
    watch.stop()
    assert watch.total_s == 3.0
