"""The cost of the meters, and whether they measure the compile time, in one run.

    python benchmarks/meters.py model=resnet18 data=synthetic amp=bf16 compile.mode=default [...]

Every second epoch runs without the meters of steps and batches; all epochs are timed from outside, start to start.
Prints the median ratio of an epoch with the meters to the next one without. Prints compile_time_s beside the time that
the first epoch took longer than its steps at their steady median.
"""

import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

from trainkit import cli
from trainkit.config.composition import compose_config
from trainkit.metrics.batches import BatchMeter
from trainkit.metrics.meters import Meters
from trainkit.results.epoch import EpochRecord
from trainkit.training import run

on = True


class SwitchedMeter(BatchMeter):
    """A meter of batches that is off in every second epoch. It is never paused: no callback has a hook in a step."""

    def begin_wait(self) -> None:
        if on:
            super().begin_wait()

    def end_wait(self) -> None:
        if on:
            super().end_wait()

    def begin_batch(self, batch: Any) -> None:
        if on:
            super().begin_batch(batch)

    def end_batch(self) -> None:
        if on:
            super().end_batch()


class SwitchedMeters(Meters):
    def __init__(self) -> None:
        super().__init__()
        self.batch_meter = SwitchedMeter(self.epoch_meter)

    def on_train_epoch_start(self, trainer: Any, task: Any) -> None:
        global on
        on = trainer.current_epoch % 2 == 0
        super().on_train_epoch_start(trainer, task)


def main() -> None:
    run.Meters = SwitchedMeters  # type: ignore[attr-defined]  # run() makes its own
    with tempfile.TemporaryDirectory() as folder, cli.one_line_errors():
        fixed = ["logger=none", "trainer.limit_val_batches=0"]
        overrides = [*fixed, "trainer.max_epochs=22", "data.num_batches=200", "compile.cache=cold", *sys.argv[1:]]
        config = compose_config(overrides, Path(__file__).parent.parent / "conf", folder)
        records: list[EpochRecord] = []
        row = run.run(config, on_epoch=records.append)
    if row.status != "ok" or row.step_time_ms_p50 is None:
        sys.exit(f"meters: the run ended {row.status}: {row.error}")
    pairs = [(a.train_time_s, b.train_time_s) for a, b in zip(records[2::2], records[3::2], strict=False)]
    ratios = [metered / bare for metered, bare in pairs]
    first = records[0]
    excess_s = first.train_time_s - first.num_steps * row.step_time_ms_p50 / 1e3
    print(f"{row.model} {row.compile_mode} {row.precision} batch {row.batch_size} on {row.device_name}")
    print(f"step {row.step_time_ms_p50:.3f} ms; epochs of {records[2].num_steps} steps, {len(pairs)} pairs")
    print(f"meters on / off: {median(ratios):.4f} (min {min(ratios):.4f}, max {max(ratios):.4f})")
    print(
        f"first epoch less its steps at the steady median: {excess_s:.3f} s; compile_time_s {row.compile_time_s:.3f} s"
    )
    if row.compile_time_s:
        print(
            f"compile_time_s / that: {row.compile_time_s / excess_s:.4f}; start-up apart {row.compile_startup_s:.3f} s"
        )


if __name__ == "__main__":
    main()
