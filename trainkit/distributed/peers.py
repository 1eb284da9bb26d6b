"""The ranks of a run as one of them sees the others: alive, lost, hung, or failed with a cause."""

import time
from collections.abc import Sequence

import torch.distributed as dist

from trainkit.distributed.launch import Launch
from trainkit.process_tree import is_running
from trainkit.results.ranks import RUNNING, Cause, RankReport, first_cause, read_reports

SILENCE_HERE_S = 5  # of a rank on this host
SILENCE_S = 25  # of a rank on another host, after which it is lost


class Peers:
    """The reports of all ranks of one launch, read anew by `look`. Of one process there are none."""

    def __init__(self, launch: Launch, timeout_s: float):
        self.reports: list[RankReport] = []
        self.gone: set[int] = set()  # ranks whose process has ended
        self._launch, self._timeout_s = launch, timeout_s
        # By rank: the time of its report, and when that changed, by the clock of this process: the system's may be set.
        self._heard: dict[int, tuple[float, float]] = {}
        self._state: object = None  # of all ranks
        self._changed_at = time.monotonic()

    def look(self, own: RankReport) -> None:
        """Read the reports. `own` is this rank's."""
        # First who is gone, then the reports: the report of a process that is gone is its last.
        gone = {report.rank for report in self.reports if self._is_gone(report)}
        reports = [own]
        for report in read_reports(self._launch.run_dir):
            if report.launch == own.launch and report.rank != own.rank:
                reports.append(report)
                self._hear(report)
        self.reports, self.gone = reports, gone
        state = [(report.rank, report.place, report.num_collectives) for report in reports]
        # A rank that was heard of and has no report any more has ended: nobody waits for it.
        all_heard = len(self._heard) == self._launch.world_size - 1
        may_wait = not all_heard or any(report.compiling for report in reports)
        if state != self._state or may_wait:
            self._state, self._changed_at = state, time.monotonic()

    def cause(self) -> Cause | None:
        """The first cause on any rank."""
        return first_cause(self.reports, lambda report: report.rank in self.gone)

    def know_first_cause(self) -> bool:
        """Whether a rank was lost, or ends by itself: not because the connection to another one was lost."""
        for report in self.reports:
            ends_by_itself = report.failed_at is not None and not report.follows
            is_lost = report.status == RUNNING and report.rank in self.gone
            if ends_by_itself or is_lost:
                return True
        return False

    def others_ended(self, rank: int) -> bool:
        """Whether another rank has failed or is gone, so that a collective with it never ends."""
        for report in self.reports:
            has_failed = report.status not in (RUNNING, "interrupted")
            if report.rank != rank and (has_failed or report.rank in self.gone):
                return True
        return False

    def begun(self) -> Sequence[int]:
        """The training batches that the ranks had begun when they were told to stop."""
        return [report.stops_before for report in self.reports if report.stops_before is not None]

    def hang(self) -> Cause | None:
        """The rank that the others wait for, once no rank has got on for `timeout_s` while none compiled."""
        if time.monotonic() - self._changed_at < self._timeout_s:
            return None
        limit = f"{self._timeout_s:g} s (ddp.timeout_s)"
        latest = max(self.reports, key=lambda report: report.time)
        slowest = min(self.reports, key=lambda report: report.num_collectives or 0)
        if all(report.num_collectives == slowest.num_collectives for report in self.reports):
            return Cause("failed", f"all ranks, {latest.place}: hung for {limit}")
        return Cause("failed", f"rank {slowest.rank}, {latest.place}: hung; the others waited for it for {limit}")

    def silent(self) -> list[int]:
        """The processes of this host that are there and do not even report: stopped, say. They end by SIGKILL alone."""
        pids = []
        for report in self.reports:
            is_here = report.host == self._launch.host and report.rank not in self.gone | {self._launch.rank}
            if is_here and self._silence_s(report) > SILENCE_HERE_S:
                pids.append(report.pid)
        return pids

    def excuse_silence(self) -> None:
        """Count all ranks as heard of now: this one cannot write its report, so others may be unable to, too."""
        for rank, (report_time, _) in self._heard.items():
            self._heard[rank] = report_time, time.monotonic()

    def _is_gone(self, report: RankReport) -> bool:
        if report.rank == self._launch.rank:
            return False
        if report.host == self._launch.host:
            return not is_running(report.pid)
        return self._silence_s(report) > SILENCE_S

    def _hear(self, report: RankReport) -> None:
        """Note when a rank's report has changed."""
        if report.rank not in self._heard or self._heard[report.rank][0] != report.time:
            self._heard[report.rank] = report.time, time.monotonic()

    def _silence_s(self, report: RankReport) -> float:
        """How long a rank's report has been the same."""
        _, heard_at = self._heard[report.rank]
        return time.monotonic() - heard_at


def num_collectives() -> int | None:
    """The collectives that this rank has begun in the default process group; None before there is one.

    torch counts them in every group, and has no public name for the count.
    """
    group = dist.group.WORLD if dist.is_available() and dist.is_initialized() else None
    if group is None or not hasattr(group, "_get_sequence_number_for_group"):
        return None
    return int(group._get_sequence_number_for_group())
