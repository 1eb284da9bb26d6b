"""Signals that reach a thread at once, however long the main thread is inside of a call."""

import os
import select
import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

STOPS = ("SIGTERM", "SIGHUP")


class SignalPipe:
    """Between `open` and `close`, signals that stop a process go to a pipe, and to `handle` in the main thread.

    They are SIGTERM, SIGHUP, and SIGINT where it raises KeyboardInterrupt. A signal that the process ignores, as SIGHUP
    under nohup, is left alone; so are all if another thread opens it. The signal by which submitit tells a job that its
    time is over is handled here too, then passed on to submitit.
    """

    def __init__(self, handle: Callable[[int], None]):
        self._handle = handle
        self._read_end, self._write_end = os.pipe()
        os.set_blocking(self._read_end, False)
        os.set_blocking(self._write_end, False)
        self._handlers: dict[int, Any] = {}
        self._wakeup_before = -1
        self._is_open = False

    def open(self) -> None:
        if threading.current_thread() is not threading.main_thread():
            return
        self._is_open = True
        self._wakeup_before = signal.set_wakeup_fd(self._write_end, warn_on_full_buffer=False)
        numbers = [getattr(signal, name) for name in STOPS]
        if "SUBMITIT_EXECUTOR" in os.environ:
            numbers.append(preemption())
        for number in numbers:
            if signal.getsignal(number) != signal.SIG_IGN:
                self._handlers[number] = signal.signal(number, self._on_signal)
        if callable(signal.getsignal(signal.SIGINT)):
            self._handlers[signal.SIGINT] = signal.signal(signal.SIGINT, self._on_signal)
        _open_pipes.append(self)

    def wait(self, timeout_s: float | None) -> int | None:
        """Wait for a signal that stops a process. Returns None after `timeout_s`, or after `wake`."""
        readable, _, _ = select.select([self._read_end], [], [], timeout_s)
        if not readable:
            return None
        (number,) = os.read(self._read_end, 1)  # another one may follow
        return number if number in self._handlers else None

    def wake(self) -> None:
        os.write(self._write_end, b"\0")

    def close(self) -> None:
        """Restore what handled the signals before."""
        if self._is_open:
            _open_pipes.remove(self)
            self.restore()
        os.close(self._read_end)
        os.close(self._write_end)

    @property
    def preemption(self) -> int | None:
        """The signal by which submitit tells a job that its time is over; None in other jobs."""
        number = preemption()
        return number if number in self._handlers else None

    def pass_on(self, number: int) -> None:
        """Have submitit handle its signal: on rank 0 it requeues the job and raises SystemExit."""
        if number == self.preemption:
            self._handlers[number](number, None)

    def interrupt(self) -> None:
        """Do on SIGINT as before `open`: raise KeyboardInterrupt."""
        self._handlers[signal.SIGINT](signal.SIGINT, None)

    def restore(self) -> None:
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._wakeup_before)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._handle(number)


def preemption() -> int:
    """The signal by which submitit tells a job that it is preempted, or that its time is over."""
    return int(getattr(signal, "SIG" + os.environ.get("SUBMITIT_PREEMPT_SIGNAL", "USR2")))


_open_pipes: list[SignalPipe] = []


def _forget_pipes() -> None:
    """In a forked process, as a DataLoader's worker: a signal to it must not reach its parent by the pipe."""
    for pipe in reversed(_open_pipes):
        pipe.restore()
    _open_pipes.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_pipes)
