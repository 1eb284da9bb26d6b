"""The compile time of one and of several ranks: cold, and from a file of `compile.artifacts`.

    python benchmarks/compile_ranks.py [--ranks N,N] [--repeats N] [--artifacts DIR] [override ...]
    python benchmarks/compile_ranks.py model=gpt2 data=synthetic amp=bf16 compile.mode=max-autotune

Each run is a process, or a torchrun, of its own with a fresh compile cache. Its graphs are those of training alone. The
cold run of each number of ranks writes a file, the warm one loads it. With `--artifacts DIR` the files stay there: a
second call, also on another machine, loads them, and its cold runs write none. Medians over the repeats, interleaved.

    compile    the row's compile_time_s, of the slowest rank; start-up: compile_startup_s, a process's first compile
    process    seconds from the start of the command to its end
    hits       of the caches of graphs, on rank 0; misses too
"""

import argparse
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from trainkit.results.files import read_row
from trainkit.results.row import Row

TRAIN = Path(__file__).parent.parent / "train.py"
SHORT = (
    "trainer.max_epochs=1 trainer.limit_train_batches=4 trainer.limit_val_batches=0 checkpoint.save_last=false "
    "logger=none compile.cache=cold"
)
STATES = ("cold", "file")


@dataclass(frozen=True)
class Measured:
    """A run's row and the seconds of its process."""

    row: Row
    process_s: float


def measure(num_ranks: int, overrides: list[str], run_dir: Path) -> Measured:
    """Run once on so many ranks. Exits if the run fails."""
    command = [sys.executable]
    if num_ranks > 1:
        command += ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={num_ranks}"]
        command.append("--virtual-local-rank")
    command += [str(TRAIN), *SHORT.split(), *overrides, f"hydra.run.dir={run_dir}"]
    start = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True)
    process_s = time.perf_counter() - start
    row = read_row(run_dir)
    if done.returncode != 0 or row is None:
        sys.exit(f"{' '.join(command)}\n{done.stdout}{done.stderr}")
    return Measured(row, process_s)


def numbers(text: str) -> list[int]:
    return [int(number) for number in text.split(",")]


def compile_s(runs: list[Measured]) -> float:
    return median(run.row.compile_time_s or 0.0 for run in runs)


def print_table(runs_by_case: dict[tuple[int, str], list[Measured]]) -> None:
    print(
        f"{'ranks':5} {'cache':5} {'compile s':>9} {'start-up s':>10} {'process s':>9} {'hits':>5} {'misses':>6}  file"
    )
    for (num_ranks, state), runs in runs_by_case.items():
        row = runs[-1].row
        startup_s = median(run.row.compile_startup_s or 0.0 for run in runs)
        process_s = median(run.process_s for run in runs)
        file = row.artifacts or "-"
        if row.artifacts_bytes is not None:
            file += f", {row.artifacts_bytes / 1e6:.1f} MB"
        if row.artifacts_reason is not None:
            file += f": {row.artifacts_reason}"
        print(
            f"{num_ranks:5} {state:5} {compile_s(runs):9.2f} {startup_s:10.2f} {process_s:9.1f} "
            f"{row.cache_hits or 0:5} {row.cache_misses or 0:6}  {file}"
        )


def print_ratios(runs_by_case: dict[tuple[int, str], list[Measured]], ranks: list[int]) -> None:
    least = compile_s(runs_by_case[ranks[0], "cold"])
    for num_ranks in ranks:
        cold, warm = (compile_s(runs_by_case[num_ranks, state]) for state in STATES)
        over_least = f"cold {cold / least:.2f} of {ranks[0]} rank's"
        print(f"{num_ranks} ranks: {over_least}, from the file {warm / cold:.2f} of cold")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=numbers, default=[1, 2], metavar="N,N")
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--artifacts", type=Path, metavar="DIR")
    arguments, overrides = parser.parse_known_args()
    runs_by_case: dict[tuple[int, str], list[Measured]] = defaultdict(list)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        files = (arguments.artifacts or folder).absolute()
        for repeat in range(arguments.repeats):
            for num_ranks in arguments.ranks:
                file = files / f"ranks{num_ranks}.bin"
                from_file = [*overrides, f"compile.artifacts={file}"]
                cold = overrides if file.exists() else from_file
                for state, words in zip(STATES, (cold, from_file), strict=True):
                    run_dir = folder / f"{repeat}-{num_ranks}-{state}"
                    runs_by_case[num_ranks, state].append(measure(num_ranks, words, run_dir))
    row = runs_by_case[arguments.ranks[0], "cold"][0].row
    print(f"{row.model}, {row.compile_mode}, {row.num_devices} x {row.device_name}, torch {row.torch_version}")
    print_table(runs_by_case)
    print_ratios(runs_by_case, arguments.ranks)


if __name__ == "__main__":
    main()
