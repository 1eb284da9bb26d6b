"""A thread that sees to it that a run ends and that its row says why: told to stop, a rank lost, a rank hung."""

import math
import os
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

from lightning.pytorch.utilities.exceptions import SIGTERMException

from trainkit.compiler.caches import remove_cold_cache
from trainkit.distributed.launch import Launch
from trainkit.distributed.peers import Peers, num_collectives
from trainkit.distributed.signals import SignalPipe
from trainkit.distributed.stop import Stop
from trainkit.process_tree import tree
from trainkit.results.files import fail_row
from trainkit.results.ranks import Cause, RankReport, remove_report, write_report
from trainkit.results.row import Row

INTERVAL_S = 1.0  # between two looks at the other ranks
GRACE_S = 10.0  # for the main thread to end: SLURM and torchrun give 30 s
ENDING_S = 0.2  # for the system to end a process
SETTLE_S = 5.0  # for another rank's cause to be known, after the connection to it was lost


class Watch:
    """Watches one rank of a run while the context is open. `request` is the row of a run that has written none.

    The main thread tells where it is (`find_place`, `is_compiling`, `stop.begin_step`) and why it fails (`record`).
    Told to stop, it stops after its step if `stops_in_order`, else at once. If it does not, because it compiles, or
    waits for a rank that is lost or hangs, then this thread writes the row and ends the process.
    """

    def __init__(self, launch: Launch, request: Row, timeout_s: float = math.inf):
        self.launch = launch
        self.stop = Stop()
        self.find_place: Callable[[], str] = lambda: "building"
        self.stops_in_order = False
        self._request, self._peers = request, Peers(launch, timeout_s)
        self._report = RankReport(launch.rank, launch.id, launch.host, os.getpid())
        self._lock = threading.RLock()  # of the report; a signal's handler may take it again
        self.is_compiling = False
        self._stopped_by: int | None = None  # the signal
        self._told_at = self._ended_at = math.inf  # when this rank was told to stop, and when another rank had ended
        self._unwinds = self._is_over = False
        self._cause: Cause | None = None  # as it is in the row
        self._signals = SignalPipe(self._handle)
        self._thread = threading.Thread(target=self._watch, name="trainkit-watch", daemon=True)

    def __enter__(self) -> "Watch":
        self._refresh()
        self._signals.open()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over = True
        self._signals.wake()
        self._thread.join()
        self._signals.close()
        if self._report.status == "ok":
            remove_report(self.launch.run_dir, self.launch.rank)
        if self._stopped_by is not None:
            self._signals.pass_on(self._stopped_by)

    @property
    def has_peers(self) -> bool:
        return self.launch.world_size > 1

    def record(self, status: str, reason: str, follows: bool = False) -> None:
        """Note, before anything else is done about it, why this rank ends. The first reason stays.

        It `follows` if another rank ended first, whose cause may be known in a moment.
        """
        self._unwinds = True
        place = self.find_place()
        self.find_place = lambda: place  # where it failed, and not where it cleans up
        if self.has_peers and status != "interrupted":
            reason = f"rank {self.launch.rank}, {self._place()}: {reason}"
        self._fail(Cause(status, reason), follows)

    def cause(self) -> Cause:
        """Why the run ended: the first cause on any rank. To be called after `record`."""
        end = time.monotonic() + SETTLE_S
        cause = self._look()
        while self._report.follows and cause == self._own_cause() and time.monotonic() < end:
            time.sleep(SETTLE_S / 50)
            cause = self._look()
        assert cause is not None, "nothing was recorded"
        return cause

    def is_own(self, cause: Cause) -> bool:
        """Whether the run ended because of this rank."""
        return cause == self._own_cause()

    def end(self, is_ok: bool) -> None:
        """Let the main thread take its time from here on: the last row is written."""
        self._is_over = True
        if is_ok:
            self._report = replace(self._report, status="ok", failed_at=None)

    def _watch(self) -> None:
        while not self._is_over:
            interval_s = INTERVAL_S if self.has_peers or self._stopped_by is not None else None
            signum = self._signals.wait(interval_s)
            if signum is not None:
                self._receive(signum)
            if self.has_peers:
                self._watch_peers()
            if self._has_waited_enough() and not self._is_over:
                self._end_process()

    def _handle(self, signum: int) -> None:
        """Handle a signal in the main thread, whenever that gets to it."""
        self._receive(signum)
        if not self._unwinds and not (self.stops_in_order and not self.is_compiling):
            self._unwinds = True
            raise SIGTERMException

    def _receive(self, signum: int) -> None:
        """Note a signal, in the thread that is first. torchrun sends one too, where another rank has ended."""
        with self._lock:
            if self._stopped_by is not None:
                return
            self._stopped_by, self._told_at = signum, time.monotonic()
            others_ended = self.has_peers and self._look_twice() is not None
            reason = f"stopped by {signal.Signals(signum).name}"
            if self.is_compiling or any(report.compiling for report in self._peers.reports):
                reason += " while compiling"
            self._fail(Cause("interrupted", reason), follows=others_ended)
            if not self.has_peers:
                self.stop.agree([self.stop.hold()])

    def _fail(self, cause: Cause, follows: bool) -> None:
        with self._lock:
            if self._report.failed_at is None or (self._report.follows and not follows):
                self._report = replace(
                    self._report, status=cause.status, reason=cause.reason, failed_at=time.time(), follows=follows
                )
                self._refresh()

    def _refresh(self) -> None:
        """Write this rank's report."""
        with self._lock:
            if not self.has_peers:
                return
            self._report = replace(
                self._report,
                time=time.time(),
                place=self._place(),
                compiling=self.is_compiling,
                num_collectives=num_collectives(),
            )
            write_report(self.launch.run_dir, self._report)

    def _place(self) -> str:
        return self.find_place() + (", compiling" if self.is_compiling else "")

    def _look(self) -> Cause | None:
        """Write this rank's report and read those of the others. Returns the first cause on any rank."""
        with self._lock:
            if not self.has_peers:
                return self._own_cause()
            self._refresh()
            self._peers.look(self._report)
            cause = self._peers.cause()
            if cause is not None and all(report.reason != cause.reason for report in self._peers.reports):
                self._fail(cause, follows=False)  # of a rank that was lost: it could not say so itself
            return cause

    def _look_twice(self) -> Cause | None:
        """Look at a moment at which another rank may just be ending."""
        cause = self._look()
        if cause is None:
            time.sleep(ENDING_S)
            cause = self._look()
        return cause

    def _own_cause(self) -> Cause | None:
        if self._report.reason is None:
            return None
        return Cause(self._report.status, self._report.reason)

    def _watch_peers(self) -> None:
        """Look at the other ranks: write the cause of one that ended into the row, stop with one that stops."""
        cause = self._look()
        hang = self._peers.hang()
        if cause is None and hang is not None:
            cause = hang
            self._fail(hang, follows=False)
            self._ended_at = time.monotonic()
        if cause is None:
            return
        if cause != self._cause:
            self._cause = cause
            fail_row(self.launch.run_dir, cause, self._request)
        if self._peers.others_ended(self.launch.rank):
            self._ended_at = min(self._ended_at, time.monotonic())
        elif cause.status == "interrupted":
            self._stop_with_peers()

    def _stop_with_peers(self) -> None:
        if self._stopped_by is None:
            os.kill(os.getpid(), signal.SIGTERM)  # as the rank that was told
            return
        if self._report.stops_before is None:
            self._report = replace(self._report, stops_before=self.stop.hold())
            self._refresh()
        begun = self._peers.begun()
        if len(begun) == self.launch.world_size and not self.stop.is_agreed:
            self.stop.agree(begun)

    def _has_waited_enough(self) -> bool:
        """Whether the main thread has had its time to end the process in order."""
        now = time.monotonic()
        in_order = self.stops_in_order and not self.is_compiling and self._stopped_by != signal.SIGINT
        if not in_order and now > self._told_at + GRACE_S:
            return True
        return now > self._ended_at + GRACE_S

    def _end_process(self) -> None:
        cause = self._look() or self._cause
        assert cause is not None
        fail_row(self.launch.run_dir, cause, self._request)
        os.write(2, f"{cause.reason}\n".encode())
        started = [process.pid for process in tree(os.getpid())[1:]]
        for pid in (*started, *self._peers.silent()):
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
