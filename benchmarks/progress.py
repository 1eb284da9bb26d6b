"""The cost of the progress line in a training step.

    python benchmarks/progress.py [--calls N] [--device cpu|cuda]

Calls what the training loop calls after each batch, N times (10,000), while the line is drawn, and prints the mean
of a call in microseconds, and of that the share of the thread that draws. stderr should be a terminal: else the line is
made, and not written.
"""

import argparse
import os
import time

import torch

from trainkit.report.progress import DRAW_S, ProgressLine
from trainkit.training.progress import ProgressWriter

MOST_US = 25.0
STEP_S = 0.001  # of work between two calls, on the device


class TimedLine(ProgressLine):
    """A progress line that adds up the processor time of its thread."""

    drawing_s = 0.0

    def _draw(self) -> None:
        super()._draw()
        self.drawing_s = time.thread_time()


def mean_us(device: torch.device, num_calls: int) -> tuple[float, float]:
    """Microseconds a step of the call, and of the thread that draws meanwhile."""
    loss = torch.ones((), device=device)
    calls_s = 0.0
    with TimedLine(every_s=DRAW_S) as line:
        line.progress.phase, line.progress.max_epochs = "training", 1
        line.progress.steps_per_epoch = line.progress.steps_left = num_calls
        writer = ProgressWriter(line.progress, max_steps=-1, compiles=False)
        for _ in range(num_calls):
            work_until = time.perf_counter() + STEP_S
            while time.perf_counter() < work_until:
                pass
            start = time.perf_counter()
            writer.end_batch(loss, num_samples=64, is_step=True)
            calls_s += time.perf_counter() - start
    return calls_s / num_calls * 1e6, line.drawing_s / num_calls * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=10_000)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    arguments = parser.parse_args()
    call_us, drawing_us = mean_us(torch.device(arguments.device), arguments.calls)
    where = "a terminal" if os.isatty(2) else "no terminal"
    print(f"{arguments.device}, {where}, mean over {arguments.calls:,} steps of {STEP_S * 1e3:g} ms:")
    print(f"call {call_us:.2f} us, thread that draws {drawing_us:.2f} us, together {call_us + drawing_us:.2f} us")
    print(f"the limit is {MOST_US:g} us")
    if call_us + drawing_us > MOST_US:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
