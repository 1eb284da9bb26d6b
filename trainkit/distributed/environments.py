"""Lightning's view of the tasks of a cluster's job."""

from lightning.fabric.plugins.environments.cluster_environment import ClusterEnvironment
from lightning.fabric.plugins.environments.lightning import LightningEnvironment
from lightning.fabric.plugins.environments.slurm import SLURMEnvironment

from trainkit.cluster import ClusterJob, cluster_job

FIRST_PORT, NUM_PORTS = 20_000, 12_000  # below those that Linux gives to connections


def cluster_environments() -> list[ClusterEnvironment]:
    """The plugin of a Trainer in a job of a cluster; empty outside of one.

    Lightning requeues no job: submitit or the cluster does.
    """
    job = cluster_job()
    if job is None:
        return []
    if job.scheduler == "slurm":
        return [SLURMEnvironment(auto_requeue=False)]
    return [LocalTasks(job)]


class LocalTasks(LightningEnvironment):
    """The tasks of submitit's local executor. All ranks meet at a port that follows from the job's id."""

    def __init__(self, job: ClusterJob):
        super().__init__()
        self._job = job
        self._main_port = FIRST_PORT + int(job.id) % NUM_PORTS

    @property
    def creates_processes_externally(self) -> bool:
        return True

    def local_rank(self) -> int:
        return self._job.rank
