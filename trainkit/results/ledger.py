"""The ledger of a race: `race.jsonl` in its folder, a line for each measurement.

The first line names the race. Every other line is written and flushed to the disk before the next measurement begins.
"""

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from trainkit.results.typed import parse

LEDGER_FILE = "race.jsonl"


@dataclass(frozen=True)
class RaceIdentity:
    """What a race is about: a ledger belongs to one alone. `base` are the overrides that it begins with; `goal` is what
    is compared, in words."""

    model: str
    data: str
    goal: str
    base: list[str]


@dataclass(frozen=True)
class Measurement:
    """A job of a race.

    `overrides` tell its arm from the base, `is_final` says that it was one of the last two's. Without a `figure`, which
    is lower for better ones, `reason` says why. `excludes` is true if the arm cannot win for that reason. `used_s` is
    the time that the race had taken when the job had ended, over all its starts.
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
    peak_bytes: int | None = None
    batch_size: int | None = None
    num_graph_breaks: int | None = None
    device_name: str | None = None
    torch_version: str | None = None


class Ledger:
    """The measurements of a race, in their order. They are read from its folder, if an earlier start left any.

    Raises ValueError, one line that names the file, for a line in its middle that is no measurement. A line that a kill
    has cut off is dropped.
    """

    def __init__(self, folder: Path, identity: RaceIdentity):
        self.path = folder / LEDGER_FILE
        self.measurements: list[Measurement] = []
        if not self._read():
            self._write([asdict(identity)], "w")

    def append(self, measurement: Measurement) -> None:
        """Add a measurement. It is on the disk when this returns."""
        self.measurements.append(measurement)
        self._write([asdict(measurement)], "a")

    @property
    def used_s(self) -> float:
        """The time that the race has taken so far."""
        return self.measurements[-1].used_s if self.measurements else 0.0

    def _read(self) -> bool:
        """Read the lines, and drop a last one that is not whole. Returns whether the first line is there."""
        if not self.path.exists():
            return False
        text = self.path.read_bytes()
        size_of_whole_lines = text.rfind(b"\n") + 1
        os.truncate(self.path, size_of_whole_lines)
        lines = text[:size_of_whole_lines].decode().splitlines()
        for number, line in enumerate(lines[1:], 2):
            try:
                self.measurements.append(parse(Measurement, json.loads(line), "it"))
            except ValueError as error:
                raise ValueError(f"{self.path}:{number} is no measurement: {' '.join(str(error).split())}") from error
        return bool(lines)

    def _write(self, lines: list[dict[str, Any]], mode: str) -> None:
        with self.path.open(mode, encoding="utf-8") as file:
            for line in lines:
                file.write(json.dumps(line) + "\n")
            file.flush()
            os.fsync(file.fileno())
