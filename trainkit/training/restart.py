"""How a run goes on after a restart by torchrun or by a cluster."""

import sys
from dataclasses import replace
from pathlib import Path

from trainkit.cli import rank
from trainkit.cluster import cluster_job
from trainkit.config.schema import RunConfig
from trainkit.distributed.restarts import FirstAttempt, choose_on_rank_0, first_attempt, num_restarts
from trainkit.results.files import read_row, write_row
from trainkit.results.row import Row
from trainkit.training.checkpoint_file import damage


def config_of_attempt(config: RunConfig) -> RunConfig:
    """The config of this attempt of a run: a restarted one has the first one's directory and its newest checkpoint.

    Without a whole checkpoint it begins as the first attempt did. All ranks get the same.
    """
    attempt = first_attempt(config.job.run_dir)
    if attempt is None:
        if num_restarts(config.job.run_dir) > 0 and rank() == 0:
            print(
                f"{_subject(config.job.run_dir)}: nothing was trained before, or its directory is unknown; begins",
                file=sys.stderr,
            )
        return config
    config = replace(config, job=replace(config.job, run_dir=attempt.run_dir))
    path = choose_on_rank_0(lambda: newest_whole_checkpoint(attempt))
    return replace(config, ckpt_path=path or config.ckpt_path)


def newest_whole_checkpoint(attempt: FirstAttempt) -> str:
    """The path of the newest checkpoint of the run; empty if it has none. Damaged ones are named on stderr.

    Those of an earlier run in the same directory are older than the first attempt.
    """
    written_ns = {}
    for path in Path(attempt.run_dir, "checkpoints").glob("*.ckpt"):
        time_ns = path.stat().st_mtime_ns
        if time_ns >= attempt.began_ns:
            written_ns[path] = time_ns
    for path in sorted(written_ns, key=written_ns.__getitem__, reverse=True):
        problem = damage(path)
        if problem is None:
            print(f"{_subject(attempt.run_dir)}: goes on from {path}", file=sys.stderr)
            return str(path)
        print(f"{path}: {problem}; passed over", file=sys.stderr)
    print(f"{_subject(attempt.run_dir)}: no checkpoint yet, begins again", file=sys.stderr)
    return ""


def _subject(run_dir: str) -> str:
    cause = "torchrun" if cluster_job() is None else "the cluster"
    return f"restart {num_restarts(run_dir)} by {cause}"


def row_of_ended_training(config: RunConfig) -> Row | None:
    """The row of the attempt before, if that one was lost after its last checkpoint, with nothing left to train.

    It is `ok` then, unless something was to be measured after the training. None without an attempt before.
    """
    if first_attempt(config.job.run_dir) is None:
        return None
    row = read_row(config.job.run_dir)
    if row is None:
        return None
    row = replace(row, num_restarts=num_restarts(config.job.run_dir))
    measured_afterwards = config.check or config.meters.breakdown or config.meters.communication
    if not measured_afterwards:
        row = replace(row, status="ok", error=None)
    if rank() == 0:
        write_row(config.job.run_dir, row)
    return row
