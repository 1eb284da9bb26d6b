"""The CPU seconds of a report by the number of its rows: `python benchmarks/report.py 500 5000`.

The rows are copies of measurements/modes-h100.jsonl, five modes with repeats, each copy with a batch size of its own,
which makes it a group of its own.
"""

import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from trainkit.analysis.comparison import compare
from trainkit.report.page import write_report
from trainkit.results.runs import Run, read_runs, write_measurements

MEASURED = Path(__file__).parent.parent / "measurements" / "modes-h100.jsonl"


def copied_runs(num_rows: int) -> list[Run]:
    """So many runs, in groups of the measured ones."""
    measured = read_runs(MEASURED)
    runs = []
    for number in range(num_rows):
        copy, position = divmod(number, len(measured))
        run = measured[position]
        row = replace(run.row, run_id=f"{copy}/{run.row.run_id}", batch_size=copy + 1)
        runs.append(replace(run, row=row))
    return runs


def report_cpu_s(num_rows: int) -> float:
    """CPU seconds from a file of rows to the written pages."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "rows.jsonl")
        write_measurements(file, copied_runs(num_rows))
        start = time.process_time()
        runs = read_runs(file)
        epochs = {run.row.run_id: run.epochs for run in runs}
        write_report(folder, compare([run.row for run in runs]), epochs)
        return time.process_time() - start


def main() -> int:
    for argument in sys.argv[1:]:
        print(f"{int(argument):,} rows: {report_cpu_s(int(argument)):.1f} s of CPU")
    return 0


if __name__ == "__main__":
    sys.exit(main())
