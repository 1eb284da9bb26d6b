"""The end of a process by SIGINT, SIGTERM or SIGHUP before a run handles them, and after it."""

import faulthandler
import os
import signal
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from types import FrameType
from typing import NoReturn

import trainkit.process_tree  # noqa: F401  # notes the parent of this process, before imports that take long

AGAIN_S = 0.1  # until a signal comes again: the callback in which its exception was ignored has ended by then


class SignalInterrupt(KeyboardInterrupt):
    """A KeyboardInterrupt by any signal."""

    def __init__(self, number: int):
        super().__init__(number)
        self.number = number


@contextmanager
def end_on_signals() -> Iterator[None]:
    """A context that ends the process with status 130 on SIGINT, 143 on SIGTERM and 129 on SIGHUP, without a traceback,
    after what was entered within it has been left. SIGHUP is left alone where it is ignored, as under nohup. A run
    within it handles all three itself. A process that crashes, as by SIGSEGV in a kernel, prints where on stderr.

    For the main thread, which ends after it. From then on the first signal changes nothing: Python's own last steps
    remove temporary files, and would print a traceback. A second one ends the process at once. So does a first one
    after those steps, in the half second in which modules are torn down: Python has restored the system's own handling
    by then. A shell shows 130, 143 or 129 of that death, too, and Python's subprocess -2, -15 or -1.
    """
    numbers = [signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        numbers.append(signal.SIGHUP)
    hook = sys.unraisablehook
    faulthandler.enable(2)  # whatever sys.stderr is by now
    try:
        sys.unraisablehook = _signal_again
        for number in numbers:
            signal.signal(number, _end)
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, _interrupt)
        yield
    except SignalInterrupt as interrupt:
        sys.exit(128 + interrupt.number)
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)
    finally:
        for number in (*numbers, signal.SIGINT):
            signal.signal(number, _ignore_once)
        sys.unraisablehook = hook


@contextmanager
def hold_signals() -> Iterator[None]:
    """A context in which SIGINT, SIGTERM and SIGHUP wait until it is left: for short work of a library whose own
    cleanup hides their exceptions behind others."""
    waiting: list[int] = []
    with ExitStack() as afterwards:
        afterwards.callback(_raise_signals, waiting)
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                afterwards.callback(signal.signal, number, signal.getsignal(number))
                signal.signal(number, lambda number, frame: waiting.append(number))
        yield


def _raise_signals(numbers: list[int]) -> None:
    for number in numbers:
        signal.raise_signal(number)


def _end(number: int, frame: FrameType | None) -> NoReturn:
    _silence_backward()
    sys.exit(128 + number)


def _interrupt(number: int, frame: FrameType | None) -> NoReturn:
    _silence_backward()
    raise KeyboardInterrupt


def _signal_again(ignored: "sys.UnraisableHookArgs") -> None:
    """Send a signal again whose exception Python has ignored, as in callbacks of imports and in finalizers."""
    error = ignored.exc_value
    number = 0
    if isinstance(error, KeyboardInterrupt):
        number = signal.SIGINT
    elif isinstance(error, SystemExit) and isinstance(error.code, int):
        number = error.code - 128
    if number <= 0:
        sys.__unraisablehook__(ignored)
        return
    send_again(number)


def send_again(number: int) -> None:
    """Send this process a signal again, after the callback in which Python ignored its exception."""
    threading.Timer(AGAIN_S, os.kill, (os.getpid(), number)).start()


def _silence_backward() -> None:
    """Leave out the traceback that torch prints of an exception which leaves a backward while it compiles it."""
    warnings.filterwarnings("ignore", message="Error detected in ")


def _ignore_once(number: int, frame: FrameType | None) -> None:
    signal.signal(number, signal.SIG_DFL)
