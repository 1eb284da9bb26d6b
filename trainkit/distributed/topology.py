"""The devices and processes of a run: those requested, or those that torchrun launched."""

import os
from dataclasses import dataclass

import torch

from trainkit.cluster import ClusterJob, cluster_job
from trainkit.config.errors import ConfigError
from trainkit.config.schema import AUTOTUNE_MODES, RunConfig, TrainerConfig
from trainkit.metrics.environment import num_gpus_of_machine, sees_own_gpu_alone


@dataclass(frozen=True)
class Devices:
    """The devices of a run: their type (`cuda` or `cpu`), how many each node has, and the number of nodes.

    `one_visible`: each process sees its own GPU alone, as `cuda:0`, so that all have the same keys of the compile cache
    (https://github.com/pytorch/pytorch/issues/170123).
    """

    type: str
    per_node: int
    num_nodes: int
    one_visible: bool = False

    @property
    def world_size(self) -> int:
        return self.per_node * self.num_nodes


def select_devices(config: RunConfig) -> Devices:
    """The devices that a run uses.

    Raises ConfigError if requested devices are missing, or if torchrun launched another number of processes.
    """
    requested, num_gpus = config.trainer.accelerator, torch.cuda.device_count()
    per_node, num_nodes = processes(config.trainer)
    if requested == "cpu" or (requested == "auto" and num_gpus == 0):
        _check_cpu(config)
        return Devices("cpu", per_node, num_nodes)
    if num_gpus == 0:
        raise ConfigError("trainer.accelerator = gpu: no CUDA device was found; use trainer.accelerator=cpu")
    one_visible = sees_own_gpu_alone()
    if one_visible:
        num_gpus = num_gpus_of_machine()
    if per_node > num_gpus:
        way_out = "ask for fewer, or use trainer.accelerator=cpu"
        raise ConfigError(f"trainer.devices = {per_node}: this machine has {num_gpus} CUDA devices; {way_out}")
    return Devices("cuda", per_node, num_nodes, one_visible)


def processes(trainer: TrainerConfig) -> tuple[int, int]:
    """(processes on each node, nodes): those that torchrun or a cluster launched, or else those requested of this node,
    by default one.

    Raises ConfigError if another number was launched than requested, or if nothing launched those of other nodes.
    """
    job = cluster_job()
    if job is not None:
        _check_tasks(trainer, job)
        return job.tasks_per_node, job.num_nodes
    if "TORCHELASTIC_RUN_ID" not in os.environ:
        if trainer.num_nodes not in (None, 1):
            raise ConfigError(
                f"trainer.num_nodes = {trainer.num_nodes}: no launcher started this process, and the other nodes would "
                f"never join it; run torchrun --nnodes={trainer.num_nodes} on each node, or leave trainer.num_nodes out"
            )
        return trainer.devices or 1, 1
    per_node = int(os.environ["LOCAL_WORLD_SIZE"])
    num_nodes = int(os.environ["WORLD_SIZE"]) // per_node
    if trainer.devices not in (None, per_node):
        raise ConfigError(
            f"trainer.devices = {trainer.devices}: torchrun launched {per_node} processes on this node; "
            f"use torchrun --nproc-per-node={trainer.devices}, or leave trainer.devices out"
        )
    if trainer.num_nodes not in (None, num_nodes):
        raise ConfigError(
            f"trainer.num_nodes = {trainer.num_nodes}: torchrun launched {num_nodes} nodes; "
            f"use torchrun --nnodes={trainer.num_nodes}, or leave trainer.num_nodes out"
        )
    return per_node, num_nodes


def _check_tasks(trainer: TrainerConfig, job: ClusterJob) -> None:
    """Raise ConfigError if a cluster launched another number of tasks than requested."""
    launched = {"devices": job.tasks_per_node, "num_nodes": job.num_nodes}
    for name, number in launched.items():
        requested = getattr(trainer, name)
        if requested not in (None, number):
            raise ConfigError(
                f"trainer.{name} = {requested}: the cluster launched {number}, one task a device; leave it out"
            )


def _check_cpu(config: RunConfig) -> None:
    """Raise ConfigError for settings that need a GPU."""
    if config.amp.precision == "16-mixed":
        raise ConfigError("amp.precision = 16-mixed: fp16 needs a GPU, none was found; use amp=bf16 or amp=off")
    if config.ddp.compression != "none" and config.ddp.strategy != "compiled":
        raise ConfigError(
            f"ddp.compression = {config.ddp.compression}: DistributedDataParallel compresses for NCCL alone; on a CPU "
            "leave it out, or use ddp.strategy=compiled"
        )
    limit_gib = config.trainer.memory_limit_gib
    if limit_gib is not None:
        raise ConfigError(f"trainer.memory_limit_gib = {limit_gib}: limits a GPU's memory; on a CPU leave it out")


def shares_autotuning(config: RunConfig, devices: Devices) -> bool:
    """Whether the ranks divide the autotuning. Raises ConfigError where they might wait for each other forever."""
    requested = config.compile.share_autotuning and config.compile.mode in AUTOTUNE_MODES
    if not requested or devices.world_size == 1:
        return False
    setting = "compile.share_autotuning = True"
    if devices.type == "cpu":
        raise ConfigError(f"{setting}: torch shares the autotuning of GPUs alone; leave it out on a CPU")
    # A rank that finds a graph in its cache does not take part in its autotuning.
    starts_empty = config.compile.cache == "cold" and config.compile.artifacts is None
    if not starts_empty and not (devices.one_visible and devices.num_nodes == 1):
        raise ConfigError(
            f"{setting}: the ranks may find different entries in their caches; use compile.cache=cold without "
            "compile.artifacts, or torchrun --virtual-local-rank on one host"
        )
    return True
