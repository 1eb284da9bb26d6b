"""Kill a rank of `torchrun --max-restarts` at random moments, and compare the parameters with an uninterrupted run's.

python scripts/restarts.py --runs 20 --ranks 2 -- model=simple_net trainer.max_epochs=4
"""

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import torch

from trainkit.process_tree import running_processes
from trainkit.results.files import read_row

ROOT = Path(__file__).parent.parent
TORCHRUN = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--max-restarts=2")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--ranks", type=int, default=2, help="on this machine")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("overrides", nargs="*", help="settings of train.py, after --")
    arguments = parser.parse_args()
    rng = random.Random(arguments.seed)
    num_different = 0
    with tempfile.TemporaryDirectory() as folder:
        torchrun = _launch(Path(folder, "whole"), arguments.ranks, arguments.overrides)
        start = time.monotonic()
        torchrun.wait()
        whole_s = time.monotonic() - start
        expected = _parameters(Path(folder, "whole"))
        print(f"uninterrupted: {whole_s:.1f} s")
        for number in range(arguments.runs):
            run_dir = Path(folder, str(number))
            torchrun = _launch(run_dir, arguments.ranks, arguments.overrides)
            delay_s, rank = rng.uniform(0, whole_s), rng.randrange(arguments.ranks)
            time.sleep(delay_s)
            event = "killed" if _kill_rank(torchrun.pid, rank) else "had ended"
            exit_status = torchrun.wait()
            equal = _equal(_parameters(run_dir), expected)
            row = read_row(run_dir)
            status, num_restarts = (row.status, row.num_restarts) if row else (None, None)
            num_different += not (equal and exit_status == 0 and status == "ok")
            print(
                f"{number}: rank {rank} {event} after {delay_s:.1f} s; exit {exit_status}, {status}, "
                f"{num_restarts} restarts, parameters {'equal' if equal else 'DIFFER'}",
                flush=True,
            )
    print(f"{arguments.runs - num_different} of {arguments.runs} ended ok with equal parameters")
    sys.exit(num_different > 0)


def _launch(run_dir: Path, num_ranks: int, overrides: list[str]) -> subprocess.Popen[bytes]:
    """Start torchrun, and wait until all ranks run, or until it has ended."""
    run_dir.mkdir()
    run_overrides = ["logger=none", "trainer.accelerator=cpu", *overrides, f"hydra.run.dir={run_dir}"]
    command = [*TORCHRUN, f"--nproc-per-node={num_ranks}", str(ROOT / "train.py"), *run_overrides]
    with (run_dir / "output.txt").open("wb") as output:
        torchrun = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
    while len(_ranks(torchrun.pid)) < num_ranks and torchrun.poll() is None:
        time.sleep(0.05)
    return torchrun


def _ranks(agent: int) -> list[int]:
    """The processes that torchrun's agent has started and that still run, in the order of ranks."""
    return sorted(process.pid for process in running_processes().values() if process.parent == agent)


def _kill_rank(agent: int, rank: int) -> bool:
    """Kill a rank, and return whether it still ran."""
    ranks = _ranks(agent)
    if rank >= len(ranks):
        return False
    with suppress(ProcessLookupError):
        os.kill(ranks[rank], signal.SIGKILL)
        return True
    return False


def _parameters(run_dir: Path) -> dict[str, torch.Tensor]:
    path = run_dir / "checkpoints" / "last.ckpt"
    if not path.exists():
        return {}
    parameters: dict[str, torch.Tensor] = torch.load(path, weights_only=True)["state_dict"]
    return parameters


def _equal(first: dict[str, torch.Tensor], second: dict[str, torch.Tensor]) -> bool:
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


if __name__ == "__main__":
    main()
