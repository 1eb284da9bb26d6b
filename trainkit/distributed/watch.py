"""A thread that sees to it that a run ends and that its row says why: told to stop, a rank lost, a rank hung."""

import math
import os
import signal
import sys
import threading
import time
from contextlib import ExitStack, suppress

from lightning.pytorch.utilities.exceptions import SIGTERMException

from trainkit.compiler.caches import remove_cold_cache
from trainkit.distributed.launch import Launch
from trainkit.distributed.ranks import Ranks
from trainkit.distributed.signals import SignalPipe
from trainkit.distributed.stop import Stop
from trainkit.process_tree import kill_descendants
from trainkit.results.files import fail_row, only_run_in
from trainkit.results.ranks import Cause
from trainkit.results.row import Row

INTERVAL_S = 1.0  # between two looks at the other ranks
GRACE_S = 10.0  # for the main thread to end: SLURM and torchrun give 30 s


class Watch:
    """Watches one rank of the only run in its directory while the context is open. Raises ConfigError if another run is
    in it. `request` is the row of a run that has written none.

    The main thread tells where it is (`ranks.find_place`, `ranks.is_compiling`, `stop.begin_step`) and why it fails
    (`record`). Told to stop, it stops after its step if `stops_in_order`, else at once. If it does not, because it
    compiles, or waits for a rank that is lost or hangs, then this thread writes the row and ends the process.

    The row names a rank that is lost within 30 s: at once on this host, after SILENCE_S on another. All ranks of a run
    that is told to stop while one compiles have ended within 20 s: after GRACE_S, and some INTERVAL_S.
    """

    def __init__(self, launch: Launch, request: Row, timeout_s: float = math.inf):
        self.launch = launch
        self.ranks = Ranks(launch, timeout_s)
        self.stop = Stop()
        self.stops_in_order = False
        self._request = request
        self._stopped_by: int | None = None  # the signal
        self._told_at = self._ended_at = math.inf  # when this rank was told to stop, and when another rank had ended
        self._unwinds = True  # until the run begins
        self._has_begun = self._has_warned = self._is_over = False
        self._cause: Cause | None = None  # as it is in the row
        self._signals = SignalPipe(self._handle)
        self._thread = threading.Thread(target=self._watch, name="trainkit-watch", daemon=True)
        self._contexts = ExitStack()

    def __enter__(self) -> "Watch":
        with ExitStack() as contexts:
            # Before the directory is taken: from then on a signal ends in a row.
            self._signals.open()
            contexts.callback(self._signals.close)
            if self.launch.rank == 0:
                contexts.enter_context(only_run_in(self.launch.run_dir))
            self._contexts = contexts.pop_all()
        self.ranks.tell()
        self._thread.start()
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        has_last_row = self._is_over
        self._is_over = True
        self._signals.wake()
        self._thread.join()
        is_cut_off = self._stopped_by is not None and isinstance(error, KeyboardInterrupt | SystemExit)
        if is_cut_off and not has_last_row:  # the signal came while the last row was made
            self._write_cause(self.ranks.cause())
            self.ranks.end(is_ok=False)
        self._contexts.close()
        self.ranks.close()
        if self._stopped_by is not None:
            self._signals.pass_on(self._stopped_by)
        if self._stopped_by is not None and isinstance(error, SIGTERMException):  # whose exit status would be 0
            sys.exit(128 + self._stopped_by)

    def begin(self) -> None:
        """Let signals raise in the main thread, from where their exception ends in a row; raise at once if one came."""
        self._unwinds, self._has_begun = False, True
        if self._stopped_by is not None:
            self._handle(self._stopped_by)

    def warn_of_unseen_ranks(self) -> None:
        """Say once on each host that reports of ranks are missing. All ranks have met, so each has written one."""
        if self._has_warned or not self.ranks.has_peers:
            return
        self.ranks.look()
        ranks = [report.rank for report in self.ranks.peers.reports]
        num_missing = self.launch.world_size - len(ranks)
        if num_missing == 0 or self.launch.rank != min(ranks):
            return
        self._has_warned = True
        print(
            f"hydra.run.dir = {self.launch.run_dir}: {num_missing} of {self.launch.world_size} "
            "ranks do not report here, so nobody notices if one hangs; choose one on a disk that all hosts share",
            file=sys.stderr,
        )

    def record(self, status: str, reason: str, follows: bool = False) -> None:
        """Note, before anything else is done about it, why this rank ends. The first reason stays.

        It `follows` if another rank ended first, whose cause may be known in a moment.
        """
        self._unwinds = True
        place = self.ranks.find_place()
        self.ranks.find_place = lambda: place  # where it failed, and not where it cleans up
        if self.ranks.has_peers and status != "interrupted":
            reason = f"rank {self.launch.rank}, {self.ranks.place()}: {reason}"
        self.ranks.tell_cause(Cause(status, reason), follows)

    def end(self, is_ok: bool) -> None:
        """Let the main thread take its time from here on: the last row is written."""
        self._is_over = True
        self.ranks.end(is_ok)

    def _watch(self) -> None:
        while not self._is_over:
            interval_s = INTERVAL_S if self.ranks.has_peers or self._stopped_by is not None else None
            signum = self._signals.wait(interval_s)
            if signum is not None:
                self._receive(signum)
            if self.ranks.has_peers:
                self._watch_peers()
            if self._has_waited_enough() and not self._is_over:
                self._end_process()

    def _handle(self, signum: int) -> None:
        """Handle a signal in the main thread, whenever that gets to it."""
        self._receive(signum)
        if signum == signal.SIGINT and self._has_begun:
            self._signals.interrupt()
        if not self._unwinds and not (self.stops_in_order and not self.ranks.is_compiling):
            self._unwinds = True
            raise SIGTERMException

    def _receive(self, signum: int) -> None:
        """Note a signal, in the thread that is first. torchrun sends one too, where another rank has ended."""
        with self.ranks.lock:
            if self._stopped_by is not None:
                if signum == self._signals.preemption and self._stopped_by != signal.SIGINT:
                    self._stopped_by = signum  # after which submitit requeues the job
                return
            self._stopped_by, self._told_at = signum, time.monotonic()
            others_ended = self.ranks.has_peers and self.ranks.look_twice() is not None
            reason = f"stopped by {signal.Signals(signum).name}"
            if self.ranks.is_compiling or any(report.compiling for report in self.ranks.peers.reports):
                reason += " while compiling"
            self.ranks.tell_cause(Cause("interrupted", reason), follows=others_ended)
            if not self.ranks.has_peers:
                self.stop.agree([self.stop.hold()])

    def _watch_peers(self) -> None:
        """Look at the other ranks: write the cause of one that ended into the row, stop with one that stops."""
        cause = self.ranks.look()
        hang = self.ranks.peers.hang()
        if cause is None and hang is not None:
            cause = hang
            self.ranks.tell_cause(hang, follows=False)
            self._ended_at = time.monotonic()
        if cause is None:
            return
        if cause != self._cause:
            self._cause = cause
            self._write_cause(cause)
        if self.ranks.peers.others_ended(self.launch.rank):
            self._ended_at = min(self._ended_at, time.monotonic())
        elif cause.status == "interrupted":
            self._stop_with_peers(cause)

    def _stop_with_peers(self, cause: Cause) -> None:
        if self._stopped_by is None:
            os.kill(os.getpid(), self._signal_of(cause))
            return
        self.ranks.tell_stop(self.stop.hold())
        begun = self.ranks.peers.begun()
        if len(begun) == self.launch.world_size and not self.stop.is_agreed:
            self.stop.agree(begun)

    def _signal_of(self, cause: Cause) -> int:
        """The signal by which this rank stops with the one that was told: where submitit has preempted the job, rank 0
        requeues it, and its own signal may be late."""
        preemption = self._signals.preemption
        if preemption is not None and signal.Signals(preemption).name in cause.reason:
            return preemption
        return signal.SIGTERM

    def _has_waited_enough(self) -> bool:
        """Whether the main thread has had its time to end the process in order."""
        now = time.monotonic()
        # Ranks that see no reports of others, without a shared disk, cannot agree on a step.
        agrees = self.stop.is_agreed or len(self.ranks.peers.reports) == self.launch.world_size
        in_order = self.stops_in_order and agrees and not self.ranks.is_compiling and self._stopped_by != signal.SIGINT
        if not in_order and now > self._told_at + GRACE_S:
            return True
        return now > self._ended_at + GRACE_S

    def _write_cause(self, cause: Cause) -> None:
        """Write into the row why the run ends. A full disk, or a damaged row, keeps no process from its end."""
        with suppress(OSError, ValueError):
            fail_row(self.launch.run_dir, cause, self._request)

    def _end_process(self) -> None:
        cause = self.ranks.look() or self._cause
        assert cause is not None
        self._write_cause(cause)
        with suppress(OSError):  # the terminal may be gone
            os.write(2, f"{cause.reason}\n".encode())
        kill_descendants()
        for pid in self.ranks.peers.silent():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        remove_cold_cache()
        exit_status = 1
        if self._stopped_by is not None and cause.status == "interrupted":
            exit_status = 128 + self._stopped_by
            try:
                self._signals.pass_on(self._stopped_by)
            except SystemExit as requeued:
                exit_status = int(requeued.code or 0)
        os._exit(exit_status)
