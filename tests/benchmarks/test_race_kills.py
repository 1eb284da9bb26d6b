"""What a race that was killed has lost: rows and a ledger made by hand."""

from dataclasses import replace
from pathlib import Path

from benchmarks.race_kills import race_folder, unrecorded
from tests.sweeps import ROW
from tests.tuning.machine import IDENTITY
from trainkit.results.files import write_row
from trainkit.results.ledger import Ledger, Measurement

JOB = Measurement([], 0, False, "race/001-job", "ok", wall_s=10.0, used_s=10.0, figure=1.0)


def test_a_job_that_ended_and_ran_again_is_lost(tmp_path: Path):
    folder = race_folder(tmp_path)
    for number, status in enumerate(("interrupted", "ok", "ok", "failed")):
        run_dir = folder / f"{number:03d}-job"
        run_dir.mkdir(parents=True)
        write_row(run_dir, replace(ROW, run_id=f"race/{run_dir.name}", status=status))
    ledger = Ledger(folder, IDENTITY)
    ledger.append(JOB)
    ledger.append(replace(JOB, run_id="race/002-job", repeat=1))
    assert unrecorded(tmp_path) == ["race/003-job had ended (failed), and is not in the ledger"]
    ledger.append(replace(JOB, run_id="race/003-job", repeat=2, status="failed"))
    assert unrecorded(tmp_path) == []
