"""Jobs of a cluster: tasks that SLURM's srun, or submitit in its place, has started as the ranks of one run."""

import os
from dataclasses import dataclass

INTERACTIVE = ("bash", "interactive")  # names of SLURM jobs in which a user types


@dataclass(frozen=True)
class ClusterJob:
    """This process as a task of a job. The id stays when the cluster requeues the job."""

    id: str
    scheduler: str  # slurm, or local: submitit's own, which imitates SLURM on this machine
    rank: int
    num_tasks: int
    num_nodes: int

    @property
    def tasks_per_node(self) -> int:
        return self.num_tasks // self.num_nodes


def cluster_job() -> ClusterJob | None:
    """The job that this process is a task of; None if there is none, or if torchrun has started it within one."""
    if "TORCHELASTIC_RUN_ID" in os.environ:
        return None
    if os.environ.get("SUBMITIT_EXECUTOR") == "local":
        return ClusterJob(
            id=os.environ["SUBMITIT_LOCAL_JOB_ID"],
            scheduler="local",
            rank=int(os.environ["SUBMITIT_LOCAL_GLOBALID"]),
            num_tasks=int(os.environ["SUBMITIT_LOCAL_NTASKS"]),
            num_nodes=1,
        )
    # srun alone sets the number of a step's tasks: a script of sbatch is no rank.
    if "SLURM_STEP_NUM_TASKS" in os.environ and os.environ.get("SLURM_JOB_NAME") not in INTERACTIVE:
        return ClusterJob(
            id=os.environ["SLURM_JOB_ID"],
            scheduler="slurm",
            rank=int(os.environ["SLURM_PROCID"]),
            num_tasks=int(os.environ["SLURM_STEP_NUM_TASKS"]),
            num_nodes=int(os.environ.get("SLURM_STEP_NUM_NODES", 1)),
        )
    return None


def start_of_job(job: ClusterJob) -> str:
    """A name of this start of a job: the same in all its tasks, another after a requeue."""
    if job.scheduler == "slurm":
        return f"{job.id}.{os.environ.get('SLURM_STEP_ID', 0)}.{os.environ.get('SLURM_RESTART_COUNT', 0)}"
    from submitit import JobEnvironment

    # No variable counts the starts; submitit writes this file before it starts a job, and anew before it requeues it.
    written_ns = JobEnvironment().paths.submitted_pickle.stat().st_mtime_ns
    return f"{job.id}.{written_ns}"
