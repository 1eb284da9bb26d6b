"""The line about a run's progress: its text, on a terminal, and where there is none."""

import itertools
import os
import sys
import threading
import time
from contextlib import contextmanager

import pytest

from tests.processes import wait_until
from trainkit.report.progress import CLEAR, LiveLine, ProgressLine, Speed, clock, progress_text
from trainkit.results.progress import Progress
from trainkit.training.run import run

TRAINING = {"phase": "training", "max_epochs": 10, "epoch": 1, "step": 120, "steps_per_epoch": 400}


def speed(seconds: float, steps: int, samples: int) -> Speed:
    measured = Speed()
    measured.seconds, measured.steps, measured.samples = seconds, steps, samples
    return measured


@pytest.mark.parametrize(
    ("progress", "text"),
    [
        ({}, "starting 0:42"),
        (TRAINING, "epoch 2/10  step 120/400"),
        (
            TRAINING | {"loss": 0.33123, "steps_left": 3000},
            "epoch 2/10  step 120/400  loss 0.3312  1,280 samples/s  2:30 left",
        ),
        (TRAINING | {"steps_per_epoch": None, "loss": 1.0}, "epoch 2/10  step 120  loss 1.0000  1,280 samples/s"),
        (TRAINING | {"compiling": "forward graph 1"}, "epoch 2/10  step 120/400  compiling 0:42: forward graph 1"),
        (
            {"compiling": "forward graph 1", "num_tuned": 12, "num_kernels": 30},
            "compiling 0:42: forward graph 1, autotuning operation 12 (30 kernels)",
        ),
        (TRAINING | {"phase": "validating"}, "epoch 2/10  validating 0:42"),
    ],
)
def test_the_line_says_how_far_the_run_is(progress, text):
    measured = speed(10.0, 200, 12800) if "loss" in progress else Speed()
    assert progress_text(Progress(**progress), measured, 42.9) == text


def test_the_speed_is_that_of_training_alone():
    measured = Speed()
    progress = Progress(phase="training")
    for now in range(5):
        measured.update(progress, float(now), is_training=now != 2)  # it compiles or validates
        progress.num_steps += 10
        progress.num_samples += 320
    assert measured.steps / measured.seconds == pytest.approx(10)
    assert measured.samples / measured.seconds == pytest.approx(320)


def test_clock():
    assert [clock(seconds) for seconds in (0.9, 62, 3723)] == ["0:00", "1:02", "1:02:03"]


@contextmanager
def standard_error(descriptor: int):
    """Python's stderr, and the process's, are this file."""
    own, before = os.dup(2), sys.stderr
    os.dup2(descriptor, 2)
    sys.stderr = os.fdopen(os.dup(descriptor), "w")
    try:
        yield
    finally:
        os.dup2(own, 2)
        os.close(own)
        sys.stderr.close()
        sys.stderr = before


def read_all(terminal: int) -> bytes:
    """What was written to a pseudo-terminal whose other end is closed; a read may return a part of it."""
    parts = []
    while True:
        try:
            part = os.read(terminal, 100_000)
        except OSError:  # EIO: Linux's end of file here
            part = b""
        if not part:
            os.close(terminal)
            return b"".join(parts)
        parts.append(part)


def test_on_a_terminal_the_line_is_drawn_over_and_cleared(monkeypatch):
    monkeypatch.setattr("trainkit.report.progress.DRAW_S", 0.01)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "21")
    master, slave = os.openpty()
    num_asked = itertools.count()

    def text() -> str:
        if next(num_asked) == 1:
            is_drawn.set()  # at the second time
        return "step 1 and much more than fits"

    is_drawn = threading.Event()
    with standard_error(slave), LiveLine(text, every_s=30) as line:
        assert is_drawn.wait(60)
        line.above(lambda: os.write(2, b"epoch 1\n"))
    os.close(slave)
    drawn = read_all(master).decode()
    assert drawn.startswith(CLEAR + "step 1 and much more" + CLEAR)
    assert CLEAR + "epoch 1\r\n" in drawn
    assert drawn.endswith(CLEAR)


def test_without_a_terminal_a_line_is_written_now_and_then_and_none_if_none_is_asked_for(monkeypatch, tmp_path):
    monkeypatch.setattr("trainkit.report.progress.DRAW_S", 0.01)
    for every_s, written in ((0.05, "step 1\n"), (30, ""), (None, "")):
        with (tmp_path / "log").open("w") as log, standard_error(log.fileno()), LiveLine(lambda: "step 1", every_s):
            if written:
                wait_until(lambda: (tmp_path / "log").read_text())
            else:
                time.sleep(0.3)
        assert (tmp_path / "log").read_text()[:7] == written


def test_a_run_keeps_its_progress_up_to_date_while_it_trains(compose):
    seen = []
    line = ProgressLine(every_s=None)
    line.progress.wants_loss = True

    def on_epoch(record):
        seen.append((line.progress.epoch, line.progress.step, line.progress.steps_left, line.progress.num_samples))

    asked = ("compile.backend=eager", "trainer.max_epochs=3", "trainer.limit_train_batches=6")
    row = run(compose(*asked, "trainer.accumulate_grad_batches=2", "trainer.max_steps=8"), on_epoch, line.progress)
    assert seen == [(0, 3, 5, 384), (1, 3, 2, 768), (2, 2, 0, 1024)]
    assert line.progress.phase == "finishing"
    assert line.progress.compiling is None
    assert 0 < line.progress.loss < 5
    assert row.status == "ok"
