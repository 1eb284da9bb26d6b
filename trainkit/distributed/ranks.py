"""All ranks of a run as one of them knows them: what it tells the others of itself, and why the run ends."""

import math
import os
import threading
import time
from collections.abc import Callable
from dataclasses import replace

from trainkit.distributed.launch import Launch
from trainkit.distributed.peers import Peers, num_collectives
from trainkit.results.ranks import Cause, RankReport, remove_report, write_report

ENDING_S = 0.2  # for the system to end a process
SETTLE_S = 5.0  # for another rank's cause to be known, after the connection to it was lost


class Ranks:
    """This rank's report, which it writes for the others, and theirs (`peers`). Several threads may use it.

    The main thread tells where it is: `find_place`, `is_compiling`.
    """

    def __init__(self, launch: Launch, timeout_s: float = math.inf):
        self.find_place: Callable[[], str] = lambda: "building"
        self.is_compiling = False
        self.peers = Peers(launch, timeout_s)
        self.own = RankReport(launch.rank, launch.id, launch.host, os.getpid())
        self.lock = threading.RLock()  # of the report; a signal's handler may take it again
        self._launch = launch

    @property
    def has_peers(self) -> bool:
        return self._launch.world_size > 1

    @property
    def own_cause(self) -> Cause | None:
        if self.own.reason is None:
            return None
        return Cause(self.own.status, self.own.reason)

    def place(self) -> str:
        return self.find_place() + (", compiling" if self.is_compiling else "")

    def tell(self) -> None:
        """Write this rank's report. One that cannot be written, as on a full disk, is written by the next look."""
        with self.lock:
            if not self.has_peers:
                return
            self.own = replace(
                self.own,
                time=time.time(),
                place=self.place(),
                compiling=self.is_compiling,
                num_collectives=num_collectives(),
            )
            try:
                write_report(self._launch.run_dir, self.own)
            except OSError:
                self.peers.excuse_silence()

    def tell_cause(self, cause: Cause, follows: bool) -> None:
        """Tell why this rank ends. The first cause stays, but for one that `follows` from another rank's."""
        with self.lock:
            if self.own.failed_at is None or (self.own.follows and not follows):
                self.own = replace(
                    self.own, status=cause.status, reason=cause.reason, failed_at=time.time(), follows=follows
                )
                self.tell()

    def tell_stop(self, num_steps: int) -> None:
        """Tell that this rank is told to stop, and holds after so many steps."""
        with self.lock:
            if self.own.stops_before is None:
                self.own = replace(self.own, stops_before=num_steps)
                self.tell()

    def look(self) -> Cause | None:
        """Write this rank's report and read those of the others. Returns the first cause on any rank."""
        with self.lock:
            if not self.has_peers:
                return self.own_cause
            self.tell()
            self.peers.look(self.own)
            cause = self.peers.cause()
            if cause is not None and all(report.reason != cause.reason for report in self.peers.reports):
                self.tell_cause(cause, follows=False)  # of a rank that was lost: it could not say so itself
            return cause

    def look_twice(self) -> Cause | None:
        """Look at a moment at which another rank may just be ending."""
        cause = self.look()
        if cause is None:
            time.sleep(ENDING_S)
            cause = self.look()
        return cause

    def cause(self) -> Cause:
        """Why the run ended: the first cause on any rank. To be called after this rank has told its own."""
        end = time.monotonic() + SETTLE_S
        cause = self.look()
        while self.own.follows and not self.peers.know_first_cause() and time.monotonic() < end:
            time.sleep(SETTLE_S / 50)
            cause = self.look()
        assert cause is not None, "nothing was recorded"
        return cause

    def end(self, is_ok: bool) -> None:
        """The last row is written. The reports of a run that is ok are removed, each by its rank."""
        if is_ok:
            self.own = replace(self.own, status="ok", failed_at=None)

    def close(self) -> None:
        if self.own.status == "ok":
            remove_report(self._launch.run_dir, self._launch.rank)
