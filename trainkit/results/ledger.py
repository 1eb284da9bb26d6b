"""The ledger of a race: `race.jsonl` in its folder, a line for each measurement.

The first line names the race. Every other line is written and flushed to the disk before the next measurement begins.
`race.time` beside it has the seconds that the race has taken, while it measures: a start that is killed leaves them.
"""

import json
import os
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from trainkit.results.metric import MeasuredMetric
from trainkit.results.typed import parse
from trainkit.results.whole_file import replace_text

LEDGER_FILE = "race.jsonl"
TIME_FILE = "race.time"


@dataclass(frozen=True)
class RaceIdentity:
    """The subject of a race, to which a ledger belongs. `base` are the overrides that all its jobs have; `goal` is what
    is compared, in words; `config_digest` tells the settings of the first run apart, those of config files too, and
    `network_digest` versions of the network's code; `num_processes` is that of a job."""

    model: str
    data: str
    goal: str
    base: list[str]
    job_steps: int
    device: str
    torch: str
    config_digest: str
    network_digest: str | None = None
    num_processes: int = 1

    def differences(self, earlier: "RaceIdentity") -> str:
        """The facts in which an earlier race differs, as in `torch 2.11.0 in place of 2.13.0`."""
        differences = []
        for fact in fields(self):
            value, earlier_value = getattr(self, fact.name), getattr(earlier, fact.name)
            if value != earlier_value:
                name = fact.name.replace("_", " ")
                differences.append(f"{name} {_fact_text(earlier_value)} in place of {_fact_text(value)}")
        return ", ".join(differences)


def _fact_text(value: Any) -> str:
    if isinstance(value, list):
        value = " ".join(value)
    return str(value or "none")


@dataclass(frozen=True)
class Measurement:
    """A job of a race.

    `overrides` tell its arm from the base, `is_final` says that it was one of the last two's. Without a `figure`, which
    is lower for better ones, `reason` says why. `excludes` is true if the arm cannot win for that reason. `wall_s` is
    the job's own time, after the `imports_s` that it waited for its server; `used_s` is what the race had taken when
    the job had ended, over all its starts. `before_inductor_s` is the part of `compile_s` that no mode changes.
    `cache_found` is the row's. `check`: its numbers were to be compared with eager's; `unchecked` says why they were
    not. `share_s` is the time that it had, its share of the budget or the user's limit, if it outlasted that.
    """

    overrides: list[str]
    repeat: int
    is_final: bool
    run_id: str
    status: str
    wall_s: float
    used_s: float
    figure: float | None = None
    reason: str | None = None
    excludes: bool = False
    step_time_ms: float | None = None
    samples_per_s: float | None = None
    compile_s: float | None = None
    before_inductor_s: float | None = None
    peak_bytes: int | None = None
    batch_size: int | None = None
    num_graph_breaks: int | None = None
    device_name: str | None = None
    torch_version: str | None = None
    seed: int | None = None
    metric: MeasuredMetric | None = None
    num_val_targets: int | None = None
    cache_found: str | None = None
    check: bool = False
    unchecked: str | None = None
    share_s: float | None = None
    imports_s: float = 0.0

    @property
    def is_cut_off(self) -> bool:
        """Whether the end of the budget ended this job."""
        return self.status == "timeout" and self.share_s is None

    @property
    def is_ended_by_share(self) -> bool:
        """Whether the arm is out because this job outlasted the time that it had."""
        return self.excludes and self.share_s is not None


class Ledger:
    """The measurements of a race, in their order. They are read from its folder, if an earlier start left any.

    Raises ValueError, one line that names the file, for another race's ledger, and for a line that is no measurement. A
    last line that a kill has cut off is dropped.
    """

    def __init__(self, folder: Path, identity: RaceIdentity):
        self.path = folder / LEDGER_FILE
        self._time_path = folder / TIME_FILE
        self.measurements: list[Measurement] = []
        lines = _whole_lines(self.path)
        if not lines:
            self._time_path.unlink(missing_ok=True)
            self._write(asdict(identity), "w")
            _sync_folder(folder)
            return
        differences = identity.differences(_parsed(RaceIdentity, lines[0], f"{self.path}:1"))
        if differences:
            raise ValueError(f"{self.path} is of another race: {differences}")
        self.measurements = _measurements(self.path, lines)

    def append(self, measurement: Measurement) -> None:
        """Add a measurement. It is on the disk when this returns."""
        self._write(asdict(measurement), "a")
        self.measurements.append(measurement)

    @property
    def used_s(self) -> float:
        """The time that the race has taken so far, that of a measurement that was broken off included."""
        measured_s = self.measurements[-1].used_s if self.measurements else 0.0
        return max(measured_s, self._noted_s())

    def note_time(self, used_s: float) -> None:
        """Keep the time that the race has taken, without a measurement."""
        replace_text(self._time_path, f"{used_s:.3f}\n")

    def _noted_s(self) -> float:
        with suppress(OSError, ValueError):
            return float(self._time_path.read_text())
        return 0.0

    def _write(self, line: dict[str, Any], mode: str) -> None:
        with self.path.open(mode, encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
            file.flush()
            os.fsync(file.fileno())


def _sync_folder(folder: Path) -> None:
    """Have the names of a folder's files on the disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read_measurements(folder: Path) -> list[Measurement]:
    """The measurements of any race, from its folder. Raises ValueError as Ledger does."""
    path = folder / LEDGER_FILE
    return _measurements(path, _whole_lines(path))


def _whole_lines(path: Path) -> list[str]:
    """The lines of a ledger, without a last one that is not whole, which is dropped from the file."""
    if not path.exists():
        return []
    text = path.read_bytes()
    size_of_whole_lines = text.rfind(b"\n") + 1
    if size_of_whole_lines < len(text):
        os.truncate(path, size_of_whole_lines)
    return text[:size_of_whole_lines].decode().splitlines()


def _measurements(path: Path, lines: list[str]) -> list[Measurement]:
    return [_parsed(Measurement, line, f"{path}:{number}") for number, line in enumerate(lines[1:], 2)]


def _parsed(kind: type, line: str, source: str) -> Any:
    try:
        return parse(kind, json.loads(line), "it")
    except ValueError as error:
        raise ValueError(f"{source} is no line of a ledger: {' '.join(str(error).split())}") from error
