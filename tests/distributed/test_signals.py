"""Signals reach a thread while the main thread is busy, and what handled them before does afterwards."""

import os
import signal

from trainkit.distributed.signals import SignalPipe


def test_a_signal_reaches_both_the_pipe_and_the_main_thread():
    handled = []
    before = signal.getsignal(signal.SIGTERM)
    pipe = SignalPipe(handled.append)
    pipe.open()
    os.kill(os.getpid(), signal.SIGTERM)
    assert pipe.wait(30) == signal.SIGTERM
    assert handled == [signal.SIGTERM]
    pipe.wake()
    assert pipe.wait(None) is None
    pipe.close()
    assert signal.getsignal(signal.SIGTERM) == before


def test_of_two_signals_that_come_at_once_none_is_lost():
    pipe = SignalPipe(lambda number: None)
    pipe.open()
    os.kill(os.getpid(), signal.SIGTERM)
    os.kill(os.getpid(), signal.SIGINT)
    assert {pipe.wait(30), pipe.wait(30)} == {signal.SIGTERM, signal.SIGINT}
    pipe.close()


def test_a_forked_process_has_neither_the_handler_nor_the_pipe():
    pipe = SignalPipe(lambda number: None)
    pipe.open()
    pid = os.fork()
    if pid == 0:  # as a worker of a DataLoader that is told to end
        os.kill(os.getpid(), signal.SIGTERM)
        os._exit(0)
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == -signal.SIGTERM
    assert pipe.wait(0.1) is None
    pipe.close()


def test_an_ignored_signal_stays_ignored():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    pipe = SignalPipe(lambda number: None)
    pipe.open()
    assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    pipe.close()
    signal.signal(signal.SIGHUP, before)
