"""The reports of a run's ranks: signs of life, and why a rank failed. They outlive the processes that wrote them."""

import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from trainkit.results.typed import parse
from trainkit.results.whole_file import replace_text

FOLDER = "ranks"  # in the run directory, while several ranks run and after one of them has failed
LOCK = "row.lock"  # in that folder: one rank at a time changes the row
RUNNING = "running"


@dataclass(frozen=True)
class RankReport:
    """The state of one rank, which it writes every second."""

    rank: int
    launch: str  # the same for all ranks of one start
    host: str
    pid: int
    time: float = 0.0  # seconds since 1970
    place: str = "building"  # or "step 12 (epoch 3)"
    compiling: bool = False
    num_collectives: int | None = None  # that it has begun
    stops_before: int | None = None  # training batches begun when it was told to stop
    status: str = RUNNING  # then a status of a row
    reason: str | None = None  # why it failed, or was told to stop
    failed_at: float | None = None
    follows: bool = False  # it lost its connection to the others: another rank failed first


@dataclass(frozen=True)
class Cause:
    """Why a run ended: status and error of its row."""

    status: str
    reason: str


def write_report(run_dir: Path, report: RankReport) -> None:
    """Write `<run_dir>/ranks/<rank>.json` atomically."""
    path = Path(run_dir, FOLDER, f"{report.rank}.json")
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_text(path, json.dumps(asdict(report)))


def read_reports(run_dir: Path) -> list[RankReport]:
    """The reports of the newest start, by rank. A file that is no report, or cannot be read, is left out."""
    reports: list[RankReport] = []
    paths: list[Path] = []
    with suppress(OSError):  # a server of files does not answer for a while
        paths += Path(run_dir, FOLDER).glob("*.json")
    for path in paths:
        try:
            reports.append(parse(RankReport, json.loads(path.read_text()), "it"))
        except (ValueError, OSError):  # of another version, or its rank has just ended
            continue
    reports.sort(key=lambda report: report.time)
    newest = [report for report in reports if report.launch == reports[-1].launch]
    return sorted(newest, key=lambda report: report.rank)


def remove_report(run_dir: Path, rank: int) -> None:
    """Remove a rank's report. The last rank removes the folder."""
    folder = Path(run_dir, FOLDER)
    Path(folder, f"{rank}.json").unlink(missing_ok=True)
    Path(folder, LOCK).unlink(missing_ok=True)
    with suppress(OSError):  # other reports are in it, or the rank of the last one has just removed it
        folder.rmdir()


def first_cause(reports: Sequence[RankReport], is_gone: Callable[[RankReport], bool]) -> Cause | None:
    """The first cause on any rank; None while all run.

    A rank that failed by itself has said why. A rank whose process is gone without a word was killed. A rank that lost
    its connection to the others knows least.
    """
    failed = sorted((report for report in reports if report.failed_at is not None), key=_age)
    if failed and not failed[0].follows:
        return Cause(failed[0].status, failed[0].reason or "")
    lost = [report for report in reports if report.status == RUNNING and is_gone(report)]
    if lost:
        first, latest = min(lost, key=_time), max(reports, key=_time)  # ranks go on together: the latest knows the step
        return Cause("failed", f"rank {first.rank}, {latest.place}: its process was lost (killed, or out of memory)")
    if failed:
        return Cause(failed[0].status, failed[0].reason or "")
    return None


def _time(report: RankReport) -> float:
    return report.time


def _age(report: RankReport) -> tuple[bool, float]:
    return report.follows, report.failed_at or 0.0
