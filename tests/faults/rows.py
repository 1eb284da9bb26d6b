"""Whether a run that has ended says what was: its exit status, its output and its row."""

import subprocess
from pathlib import Path

from trainkit.results.files import read_row

MOST_LINES = 30  # that refuse a run: one for each of the damaged files


def problems_of_run(ended: subprocess.CompletedProcess[str], folder: Path | str) -> list[str]:
    """What is wrong with the end of a run that nobody stopped, whose run directory is `folder`/run."""
    problems = []
    lines = ended.stderr.splitlines()
    if "Traceback" in ended.stderr:
        problems.append(f"traceback {lines[-1]}")
    if ended.returncode not in (0, 1, 2):
        problems.append(f"exit status {ended.returncode}")
    if ended.returncode == 2 and not 0 < len(lines) <= MOST_LINES:
        problems.append(f"{len(lines)} lines on stderr with exit status 2")
    row = read_row(Path(folder, "run"))
    if ended.returncode == 2:
        return problems
    if row is None:
        problems.append("no row")
    elif (row.status == "ok") != (ended.returncode == 0):
        problems.append(f"status {row.status} with exit status {ended.returncode}")
    elif row.status != "ok" and not row.error:
        problems.append(f"status {row.status} without a reason")
    return problems
