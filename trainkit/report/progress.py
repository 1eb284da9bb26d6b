"""The progress of a run or of a sweep: a line of the terminal that is drawn again and again, or lines now and then.

The line goes to stderr. A thread draws it, so it lives while torch compiles.
"""

import os
import shutil
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, Self

from trainkit.formatting import fixed
from trainkit.results.progress import Progress

DRAW_S = 0.5  # between two drawings
MEMORY = 0.95  # the share of what was measured before that a drawing keeps: the speed is that of some 10 s
CLEAR = "\r\x1b[2K"


class StageLines:
    """Prints what a run does at each stage, with the seconds since this object was made."""

    def __init__(self, is_shown: bool = True):
        self._start, self._is_shown = time.monotonic(), is_shown

    def show(self, stage: str) -> None:
        if self._is_shown:
            print(f"{time.monotonic() - self._start:6.1f} s  {stage}", flush=True)


class LiveLine:
    """Shows a text while it is entered: on a terminal a line at its bottom, else a line every `every_s` seconds.

    Nothing is shown with `every_s` None. `text` is called on a thread of its own.
    """

    def __init__(self, text: Callable[[], str], every_s: float | None):
        self._text, self._every_s = text, every_s
        self._is_live = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
        self._stopped = threading.Event()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._draw, name="progress", daemon=True)

    def __enter__(self) -> Self:
        if self._every_s is not None:
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        if self._thread.ident is not None:
            self._thread.join()
            self._write(CLEAR if self._is_live else "")

    def above(self, show: Callable[..., None], *arguments: Any) -> None:
        """Call a function that prints, above the line."""
        with self._lock:
            if self._every_s is not None and self._is_live:
                self._write(CLEAR)
            show(*arguments)
            sys.stdout.flush()

    def _draw(self) -> None:
        assert self._every_s is not None
        shown_at = time.monotonic()
        while not self._stopped.wait(DRAW_S):
            line = self._text()
            with self._lock:
                if self._is_live:
                    width = shutil.get_terminal_size().columns - 1
                    self._write(CLEAR + line[:width])
                elif time.monotonic() - shown_at >= self._every_s:
                    shown_at = time.monotonic()
                    self._write(line + "\n")

    def _write(self, text: str) -> None:
        """Write past Python's buffer, whose lock a process that is forked meanwhile would inherit."""
        try:
            os.write(2, text.encode())
        except OSError:  # the terminal is gone
            self._stopped.set()


class ProgressLine(LiveLine):
    """Shows a Progress: step, loss, samples a second and the time that is left, or the compile that runs."""

    def __init__(self, every_s: float | None, is_shown: bool = True):
        super().__init__(self._line, every_s if is_shown else None)
        self.progress = Progress()
        self._speed = Speed()
        self._state: tuple[object, ...] = ()
        self._state_since = 0.0

    def _line(self) -> str:
        progress, now = self.progress, time.monotonic()
        is_compiling = progress.compiling is not None
        is_training = progress.phase == "training" and not is_compiling
        self._speed.update(progress, now, is_training)
        progress.wants_loss = True
        state = (progress.phase, is_compiling, progress.epoch)
        if state != self._state:
            self._state, self._state_since = state, now
        return progress_text(progress, self._speed, now - self._state_since)


class Speed:
    """The steps and samples a second of late, of training alone."""

    def __init__(self) -> None:
        self.seconds = self.steps = self.samples = 0.0
        self._last: tuple[float, int, int] | None = None  # the time, steps, samples; None while nothing is trained

    def update(self, progress: Progress, now: float, is_training: bool) -> None:
        last, self._last = self._last, None
        if not is_training:
            return
        self._last = (now, progress.num_steps, progress.num_samples)
        if last is None:
            return
        self.seconds = MEMORY * self.seconds + now - last[0]
        self.steps = MEMORY * self.steps + progress.num_steps - last[1]
        self.samples = MEMORY * self.samples + progress.num_samples - last[2]


def progress_text(progress: Progress, speed: Speed, phase_s: float) -> str:
    """The line about a run whose phase has lasted `phase_s`."""
    if progress.phase in ("starting", "finishing"):
        return _compile_text(progress, phase_s) or f"{progress.phase} {clock(phase_s)}"
    parts = [f"epoch {progress.epoch + 1}/{progress.max_epochs}"]
    if progress.phase == "validating":
        parts.append(_compile_text(progress, phase_s) or f"validating {clock(phase_s)}")
        return "  ".join(parts)
    steps = f"step {progress.step}"
    if progress.steps_per_epoch is not None:
        steps += f"/{progress.steps_per_epoch}"
    parts.append(steps)
    if progress.compiling is not None:
        return "  ".join([*parts, _compile_text(progress, phase_s)])
    if progress.loss is not None:
        parts.append(f"loss {fixed(progress.loss, 4)}")
    if speed.seconds > 0 and speed.steps > 0:
        parts.append(f"{fixed(speed.samples / speed.seconds, 0)} samples/s")
        if progress.steps_left is not None:
            parts.append(f"{clock(progress.steps_left * speed.seconds / speed.steps)} left")
    return "  ".join(parts)


def _compile_text(progress: Progress, phase_s: float) -> str:
    """The compile that runs; empty without one."""
    compiling = progress.compiling
    if compiling is None:
        return ""
    text = f"compiling {clock(phase_s)}: {compiling}"
    if progress.num_tuned:
        text += f", autotuning operation {progress.num_tuned} ({progress.num_kernels} kernels)"
    return text


def clock(seconds: float) -> str:
    """A time as 0:42, or 1:02:03 from an hour on."""
    minutes, rest_s = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours}:{minutes:02}:{rest_s:02}"
    return f"{minutes}:{rest_s:02}"
