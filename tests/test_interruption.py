"""How the process of a command ends by a signal that no run handles."""

import os
import signal
import subprocess
import sys

import pytest

from tests import forked
from tests.conftest import ROOT
from trainkit.interruption import hold_signals

PROGRAM = """
import atexit, os, signal
from trainkit.interruption import end_on_signals
number = signal.Signals[{name!r}]
signal.signal(signal.SIGHUP, signal.SIG_IGN if {ignores} else signal.SIG_DFL)
with end_on_signals():
    atexit.register(print, "cleaned up")
    for _ in range({num_late}):
        atexit.register(os.kill, os.getpid(), number)
    if {is_early}:
        os.kill(os.getpid(), number)
"""

# The backward of a compile is traced like this.
IN_BACKWARD = """
import os, signal, torch
from trainkit.interruption import end_on_signals
def kill(gradient):
    os.kill(os.getpid(), signal.Signals[{name!r}])
with end_on_signals(), torch.autograd.set_detect_anomaly(True):
    leaf = torch.ones(1, requires_grad=True)
    loss = (leaf * leaf).exp()
    loss.register_hook(kill)
    loss.backward()
"""

# SIGINT comes between the handlers that are set first and its own.
IN_SETUP = """
import os, signal
from trainkit.interruption import end_on_signals
set_handler = signal.signal
def set_and_interrupt(*words):
    signal.signal = set_handler
    set_handler(*words)
    os.kill(os.getpid(), signal.SIGINT)
signal.signal = set_and_interrupt
with end_on_signals():
    print("entered")
"""

# Python ignores the exceptions of a callback. Imports have such callbacks.
IN_CALLBACK = """
import os, signal, time, weakref
from trainkit.interruption import end_on_signals
class Thing:
    pass
with end_on_signals():
    thing = Thing()
    reference = weakref.ref(thing, lambda gone: {action})
    del thing
    time.sleep({wait_s})
"""


def ended(name: str, is_early: bool = False, num_late: int = 0, ignores: bool = False) -> tuple[int, str, str]:
    """Exit status, output and errors of a process with signals before its last steps, and within them."""
    program = PROGRAM.format(name=name, is_early=is_early, num_late=num_late, ignores=ignores)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize(("name", "status"), [("SIGINT", 130), ("SIGTERM", 143), ("SIGHUP", 129)])
def test_a_signal_ends_a_process_after_its_last_steps(name, status):
    assert ended(name, is_early=True) == (status, "cleaned up\n", "")
    assert ended(name, is_early=True, num_late=1) == (status, "cleaned up\n", "")
    assert ended(name, num_late=1) == (0, "cleaned up\n", "")


def test_a_second_signal_within_the_last_steps_ends_a_process_at_once():
    assert ended("SIGTERM", num_late=2) == (-signal.SIGTERM, "", "")


@pytest.mark.parametrize(("name", "status"), [("SIGINT", 130), ("SIGTERM", 143)])
def test_a_signal_within_a_backward_is_no_error_of_it(name, status):
    program = IN_BACKWARD.format(name=name)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stderr) == (status, "")


@pytest.mark.parametrize(("name", "status"), [("SIGINT", 130), ("SIGTERM", 143)])
def test_a_signal_within_a_callback_is_not_lost(name, status):
    program = IN_CALLBACK.format(action=f"os.kill(os.getpid(), signal.{name})", wait_s=60)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=50)
    assert (done.returncode, done.stderr) == (status, "")


def test_another_error_within_a_callback_is_shown_as_ever():
    program = IN_CALLBACK.format(action="1 / 0", wait_s=0)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0
    assert done.stderr.endswith("ZeroDivisionError: division by zero\n")


@pytest.mark.parametrize("fails", [False, True])
def test_a_signal_that_is_held_comes_after_the_work_whatever_becomes_of_that(fails):
    done = []

    def work() -> None:
        with hold_signals():
            signal.raise_signal(signal.SIGINT)
            done.append("work")
            if fails:
                raise ValueError

    with pytest.raises(KeyboardInterrupt):
        work()
    assert done == ["work"]
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)


def test_a_hangup_that_is_ignored_stays_ignored():
    assert ended("SIGHUP", is_early=True, num_late=2, ignores=True) == (0, "cleaned up\n", "")


def test_an_interrupt_while_the_handlers_are_set_is_no_error():
    done = subprocess.run([sys.executable, "-c", IN_SETUP], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_an_interrupt_of_a_forked_script_that_cannot_heed_it_yet_is_no_error(tmp_path):
    script = tmp_path / "interrupted.py"
    script.write_text("import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n")
    done = forked.python(script, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (130, "")


def test_an_interrupt_in_the_first_moment_of_a_forked_run_is_no_error(tmp_path):
    done = forked.python(ROOT / "train.py", cwd=tmp_path, on_start=lambda pid: os.kill(pid, signal.SIGINT))
    assert (done.returncode, done.stderr) == (130, "")


# As where a sweep writes its report.
IN_SWEEP = """
import os, signal
from trainkit.interruption import end_on_signals
from trainkit.sweep.sweep import handle_signals
with end_on_signals():
    handle_signals()
    os.kill(os.getpid(), signal.Signals[{name!r}])
"""


@pytest.mark.parametrize(("name", "status"), [("SIGINT", 130), ("SIGTERM", 143)])
def test_a_signal_to_a_sweep_outside_of_its_jobs_is_the_exit_status(name, status, tmp_path):
    (tmp_path / "program.py").write_text(IN_SWEEP.format(name=name))
    done = forked.python(tmp_path / "program.py", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (status, "")
