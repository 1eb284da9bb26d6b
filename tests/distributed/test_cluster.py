"""Tasks of a cluster's job as the ranks of a run; a job that is preempted goes on where it was."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.processes import children, is_running, wait_until
from trainkit import cli
from trainkit.cluster import ClusterJob, cluster_job, start_of_job
from trainkit.config.errors import ConfigError
from trainkit.config.schema import JobConfig, RunConfig, TrainerConfig
from trainkit.distributed.environments import LocalTasks, cluster_environments
from trainkit.distributed.launch import join_launch
from trainkit.distributed.ranks import Ranks
from trainkit.distributed.restarts import (
    FirstAttempt,
    _attempts_of_job,
    first_attempt,
    num_restarts,
    publish_first_attempt,
)
from trainkit.distributed.topology import processes
from trainkit.results.files import read_epochs, read_row
from trainkit.results.ranks import RankReport, write_report

STOPPED_S = 20  # what Watch guarantees
SRUN = {  # the variables of the third of four tasks on two nodes
    "SLURM_JOB_ID": "4711",
    "SLURM_JOB_NAME": "train",
    "SLURM_PROCID": "2",
    "SLURM_LOCALID": "0",
    "SLURM_NODEID": "1",
    "SLURM_NTASKS": "4",
    "SLURM_NTASKS_PER_NODE": "2",
    "SLURM_STEP_NUM_TASKS": "4",
    "SLURM_STEP_NUM_NODES": "2",
}
LOCAL = {
    "SUBMITIT_EXECUTOR": "local",
    "SUBMITIT_LOCAL_JOB_ID": "90123",
    "SUBMITIT_LOCAL_GLOBALID": "1",
    "SUBMITIT_LOCAL_NTASKS": "2",
}

SLOW_ONCE = """
import ctypes, os, signal
from pathlib import Path
from torch._dynamo import register_backend
from tests.networks import Plain as Net

@register_backend
def slow(graph, inputs):
    compiles = Path("compiles" + os.environ["SUBMITIT_LOCAL_GLOBALID"])
    if "conv2d" not in graph.code and not compiles.exists():  # which a process compiles first and throws away
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR2])  # so that the call is not interrupted
        compiles.touch()
        ctypes.CDLL(None).sleep(100)
    return graph.forward
"""


@pytest.fixture
def environment(monkeypatch):
    """Sets variables, and no others of a cluster."""

    def change(variables: dict[str, str]) -> None:
        for name in list(os.environ):
            if name.startswith(("SLURM_", "SUBMITIT_", "TORCHELASTIC_")):
                monkeypatch.delenv(name)
        for name, value in variables.items():
            monkeypatch.setenv(name, value)

    return change


def test_a_task_of_srun_is_a_rank(environment):
    environment(SRUN)
    assert cluster_job() == ClusterJob("4711", "slurm", rank=2, num_tasks=4, num_nodes=2)
    assert (cli.rank(), processes(TrainerConfig())) == (2, (2, 2))
    (slurm,) = cluster_environments()
    assert (slurm.global_rank(), slurm.world_size(), slurm.auto_requeue) == (2, 4, False)


def test_a_task_of_submitit_on_this_machine_is_a_rank(environment):
    environment(LOCAL)
    assert cluster_job() == ClusterJob("90123", "local", rank=1, num_tasks=2, num_nodes=1)
    assert (cli.rank(), processes(TrainerConfig())) == (1, (2, 1))
    (local,) = cluster_environments()
    assert isinstance(local, LocalTasks)
    assert (local.local_rank(), local.creates_processes_externally) == (1, True)
    assert local.main_port == 20_000 + 90_123 % 12_000


@pytest.mark.parametrize(
    "variables",
    [
        {},
        {name: value for name, value in SRUN.items() if "STEP" not in name},  # a script of sbatch
        SRUN | {"SLURM_JOB_NAME": "bash"},
        SRUN | {"TORCHELASTIC_RUN_ID": "1"},
    ],
)
def test_a_script_a_shell_and_torchrun_within_a_job_are_no_tasks(environment, variables):
    environment(variables)
    assert cluster_job() is None
    assert cluster_environments() == []


def test_other_numbers_than_the_cluster_launched_are_one_line(environment):
    environment(SRUN)
    assert processes(TrainerConfig(devices=2, num_nodes=2)) == (2, 2)
    with pytest.raises(ConfigError, match=r"trainer\.devices = 4: the cluster launched 2, one task a device; leave it"):
        processes(TrainerConfig(devices=4))


def test_a_requeued_job_finds_its_own_attempts_alone(environment, tmp_path):
    for job_id, began_ns in (("1", 10), ("4711", 20), ("4711", 30)):
        environment(SRUN | {"SLURM_JOB_ID": job_id})
        _attempts_of_job.cache_clear()
        publish_first_attempt(FirstAttempt(str(tmp_path), began_ns))
    assert (first_attempt(tmp_path), num_restarts(tmp_path)) == (FirstAttempt(str(tmp_path), 20), 2)
    publish_first_attempt(FirstAttempt(str(tmp_path), 40))
    assert num_restarts(tmp_path) == 2  # this attempt is none before itself
    environment(SRUN | {"SLURM_JOB_ID": "5"})
    _attempts_of_job.cache_clear()
    assert first_attempt(tmp_path) is None
    _attempts_of_job.cache_clear()


def test_a_requeued_job_reads_no_report_of_the_start_before(environment, tmp_path):
    environment(SRUN)
    first = join_launch(RunConfig(job=JobConfig(run_dir=str(tmp_path))))
    stopped = RankReport(1, first.id, "there", pid=1, time=1.0, status="interrupted", reason="told", failed_at=1.0)
    write_report(tmp_path, stopped)  # before it began to train: no attempt is noted
    environment(SRUN | {"SLURM_RESTART_COUNT": "1"})
    ranks = Ranks(join_launch(RunConfig(job=JobConfig(run_dir=str(tmp_path)))))
    assert ranks.look() is None


def test_submitit_starts_a_job_on_this_machine_under_another_name_after_a_requeue(environment, tmp_path):
    pytest.importorskip("submitit")
    task = tmp_path / "90123" / "90123_submitted.pkl"
    task.parent.mkdir()
    names = []
    for written_ns in (1, 2):
        task.touch()
        os.utime(task, ns=(0, written_ns))  # as submitit does before each start
        for rank in ("0", "1"):
            environment(LOCAL | {"SUBMITIT_FOLDER": str(tmp_path / "%j"), "SUBMITIT_LOCAL_GLOBALID": rank})
            names.append(start_of_job(cluster_job()))
    assert names[0] == names[1] != names[2] == names[3]


def preempt_once(folder: Path, is_due: Callable[[Path], bool], *words: str) -> tuple[Path, str]:
    """Run a job of two tasks under submitit, and preempt it as soon as `is_due`, given its run directory. Returns that
    and what the job has printed. All tasks must have ended in time."""
    pytest.importorskip("submitit")
    command = [sys.executable, str(ROOT / "train.py"), "-m", "hydra/launcher=submitit_local", "sweep=s", "logger=none"]
    command += ["hydra.launcher.tasks_per_node=2", "trainer.accelerator=cpu", *words]
    env = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join([str(folder), str(ROOT)])}
    sweep = subprocess.Popen(command, cwd=folder, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    run_dir = folder / "runs" / "sweeps" / "s" / "0"
    deadline = time.monotonic() + 300
    while not is_due(run_dir):
        assert sweep.poll() is None, sweep.communicate()[1]
        assert time.monotonic() < deadline
        time.sleep(0.05)
    (controller,) = [path for path in Path(folder, "runs/sweeps/s/.submitit").iterdir() if path.name.isdigit()]
    tasks = children(int(controller.name))
    for task in tasks:
        os.kill(task, signal.SIGUSR2)  # as SLURM signals each task
    told_at = time.monotonic()
    wait_until(lambda: not any(map(is_running, tasks)))
    seconds = time.monotonic() - told_at
    print(f"{seconds:.1f} s")
    assert seconds < STOPPED_S
    _, errors = sweep.communicate(timeout=180)
    log = (controller / f"{controller.name}_0_log.err").read_text()
    assert sweep.returncode == 0, errors + log
    return run_dir, log


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_preempted_job_is_requeued_and_goes_on_from_its_last_checkpoint(tmp_path):
    words = ("model=simple_net", "compile.mode=eager", "trainer.max_epochs=20")
    run_dir, log = preempt_once(tmp_path, lambda run_dir: len(list(read_epochs(run_dir))) >= 2, *words)
    row = read_row(run_dir)
    before = json.loads((run_dir / "row.1.json").read_text())
    assert (before["status"], before["error"]) == ("interrupted", "stopped by SIGUSR2")
    assert (row.status, row.num_restarts, row.world_size, row.num_epochs < 20) == ("ok", 1, 2, True)
    assert f"restart 1 by the cluster: goes on from {run_dir}/checkpoints/last.ckpt" in log
    epochs = list(read_epochs(run_dir))
    assert [record.epoch for record in epochs] == list(range(20))
    assert {record.num_restarts for record in epochs} == {0, 1}


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_job_that_is_preempted_while_it_compiles_is_requeued(tmp_path):
    (tmp_path / "mine.py").write_text(SLOW_ONCE)
    words = ("model._target_=mine.Net", "model.width=4", "compile.backend=slow", "compile.scope=net")

    def compiles(run_dir: Path) -> bool:
        return all((tmp_path / f"compiles{rank}").exists() for rank in range(2))

    run_dir, log = preempt_once(tmp_path, compiles, *words, "trainer.max_epochs=1")
    row = read_row(run_dir)
    before = json.loads((run_dir / "row.1.json").read_text())
    assert (before["status"], before["error"]) == ("interrupted", "stopped by SIGUSR2 while compiling")
    assert (row.status, row.num_restarts, row.world_size, row.num_epochs) == ("ok", 1, 2, 1)
    assert "restart 1 by the cluster: no checkpoint yet, begins again" in log


def test_a_job_of_submitit_that_fails_is_one_line(tmp_path):
    pytest.importorskip("submitit")
    words = ["-m", "hydra/launcher=submitit_local", "data.batch_size=-1", "trainer.accelerator=cpu", "logger=none"]
    command = [sys.executable, str(ROOT / "train.py"), *words]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 1
    line = done.stderr.splitlines()[-1]
    assert "failed: data.batch_size = -1: expected a whole number of at least 1; try data.batch_size=1; the" in line
    assert "Traceback" not in done.stderr
