"""The devices of a run: those requested, or those that torchrun launched."""

import pytest

from trainkit.compiler import inductor
from trainkit.config.errors import ConfigError
from trainkit.config.schema import (
    Accelerator,
    Cache,
    Compression,
    Mode,
    Precision,
    RunConfig,
    Strategy,
    TrainerConfig,
)
from trainkit.distributed.topology import Devices, processes, select_devices, shares_autotuning
from trainkit.training.trainer import shared_arguments


@pytest.fixture
def torchrun(monkeypatch):
    """(processes on each node, nodes): the environment of a process that torchrun launched."""

    def launch(per_node: int, num_nodes: int, local_rank: int = 0) -> None:
        monkeypatch.setenv("TORCHELASTIC_RUN_ID", "none")
        monkeypatch.setenv("LOCAL_RANK", str(local_rank))
        monkeypatch.setenv("LOCAL_WORLD_SIZE", str(per_node))
        monkeypatch.setenv("WORLD_SIZE", str(per_node * num_nodes))

    return launch


def config(**settings) -> RunConfig:
    return RunConfig(trainer=TrainerConfig(**settings))


def test_without_torchrun_they_are_those_requested():
    assert processes(TrainerConfig()) == (1, 1)
    assert processes(TrainerConfig(devices=2, num_nodes=1)) == (2, 1)


def test_other_nodes_need_a_launcher():
    with pytest.raises(
        ConfigError, match=r"trainer\.num_nodes = 2: no launcher .* run torchrun --nnodes=2 on each node"
    ):
        processes(TrainerConfig(num_nodes=2))


def test_torchrun_decides_and_may_be_confirmed(torchrun):
    torchrun(per_node=4, num_nodes=2)
    assert processes(TrainerConfig()) == (4, 2)
    assert processes(TrainerConfig(devices=4, num_nodes=2)) == (4, 2)


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"devices": 8}, r"trainer\.devices = 8: torchrun launched 4 processes .* use torchrun --nproc-per-node=8"),
        ({"num_nodes": 1}, r"trainer\.num_nodes = 1: torchrun launched 2 nodes; use torchrun --nnodes=1"),
    ],
)
def test_another_number_than_torchrun_launched_is_refused(settings, complaint, torchrun):
    torchrun(per_node=4, num_nodes=2)
    with pytest.raises(ConfigError, match=complaint):
        processes(TrainerConfig(**settings))


def test_a_cpu_is_used_if_requested_or_without_a_gpu(monkeypatch):
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    assert select_devices(config(accelerator=Accelerator.cpu, devices=3)) == Devices("cpu", 3, 1)
    assert select_devices(config(devices=2)) == Devices("cuda", 2, 1)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 0)
    assert select_devices(config(devices=2)) == Devices("cpu", 2, 1)


def test_missing_gpus_are_refused(monkeypatch):
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    with pytest.raises(ConfigError, match=r"trainer\.devices = 3: this machine has 2 CUDA devices"):
        select_devices(config(devices=3))
    monkeypatch.setattr("torch.cuda.device_count", lambda: 0)
    with pytest.raises(ConfigError, match=r"trainer\.accelerator = gpu: no CUDA device was found"):
        select_devices(config(accelerator=Accelerator.gpu))


@pytest.mark.parametrize(("num_nodes", "num_gpus"), [(1, 2), (2, 2), (1, 8)])
def test_a_rank_that_sees_its_own_gpu_alone_is_a_node_of_lightnings(num_nodes, num_gpus, torchrun, monkeypatch):
    torchrun(per_node=2, num_nodes=num_nodes)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 1)
    monkeypatch.setattr("trainkit.distributed.topology.num_gpus_of_machine", lambda: num_gpus)
    devices = select_devices(config())
    assert devices == Devices("cuda", 2, num_nodes, one_visible=True)
    assert devices.world_size == 2 * num_nodes
    arguments = shared_arguments(config(), devices)
    assert (arguments["devices"], arguments["num_nodes"]) == (1, 2 * num_nodes)


def test_more_ranks_than_gpus_are_refused_whatever_a_rank_sees(torchrun, monkeypatch):
    monkeypatch.setattr("torch.cuda.device_count", lambda: 1)
    monkeypatch.setattr("trainkit.distributed.topology.num_gpus_of_machine", lambda: 2)
    torchrun(per_node=3, num_nodes=1)
    with pytest.raises(ConfigError, match=r"trainer\.devices = 3: this machine has 2 CUDA devices"):
        select_devices(config())
    torchrun(per_node=2, num_nodes=1, local_rank=1)  # of a torchrun that shows one GPU to all ranks
    with pytest.raises(ConfigError, match=r"trainer\.devices = 2: this machine has 1 CUDA devices"):
        select_devices(config())


def test_settings_of_a_gpu_are_refused_on_a_cpu():
    with pytest.raises(ConfigError, match=r"trainer\.memory_limit_gib = 2: limits a GPU's memory"):
        select_devices(config(accelerator=Accelerator.cpu, memory_limit_gib=2))
    compressed = config(accelerator=Accelerator.cpu)
    compressed.ddp.compression = Compression.bf16
    with pytest.raises(ConfigError, match=r"ddp\.compression = bf16: DistributedDataParallel compresses for NCCL"):
        select_devices(compressed)
    compressed.ddp.strategy = Strategy.compiled
    assert select_devices(compressed).type == "cpu"
    half = config(accelerator=Accelerator.cpu)
    half.amp.precision = Precision["16-mixed"]
    with pytest.raises(ConfigError, match=r"amp\.precision = 16-mixed: fp16 needs a GPU"):
        select_devices(half)


def autotuning(cache: str = "warm", mode: str = "max-autotune", artifacts: str | None = None) -> RunConfig:
    shared = RunConfig()
    shared.compile.share_autotuning, shared.compile.artifacts = True, artifacts
    shared.compile.cache, shared.compile.mode = Cache[cache], Mode[mode]
    return shared


OWN_GPUS = Devices("cuda", 2, 1, one_visible=True)
ALL_GPUS = Devices("cuda", 2, 1)


def test_ranks_share_the_autotuning_where_all_find_the_same_in_their_caches():
    assert shares_autotuning(autotuning("warm"), OWN_GPUS)
    assert shares_autotuning(autotuning("warm", artifacts="file"), OWN_GPUS)
    assert shares_autotuning(autotuning("cold"), ALL_GPUS)
    assert not shares_autotuning(autotuning(mode="default"), ALL_GPUS)
    assert not shares_autotuning(autotuning(), Devices("cuda", 1, 1))
    assert not shares_autotuning(RunConfig(), OWN_GPUS)


@pytest.mark.parametrize(
    ("config", "devices", "complaint"),
    [
        (autotuning("warm"), ALL_GPUS, "may find different entries in their caches; use compile.cache=cold"),
        (autotuning("cold", artifacts="file"), ALL_GPUS, "may find different entries"),
        (autotuning("warm"), Devices("cuda", 2, 2, one_visible=True), "may find different entries"),
        (autotuning("cold"), Devices("cpu", 2, 1), "torch shares the autotuning of GPUs alone; leave it out on a CPU"),
    ],
)
def test_ranks_that_could_wait_for_each_other_forever_do_not_share_the_autotuning(config, devices, complaint):
    with pytest.raises(ConfigError, match=complaint):
        shares_autotuning(config, devices)


def test_what_torch_needs_for_shared_autotuning_is_set_and_restored():
    from torch._inductor import config, distributed_autotune

    before = distributed_autotune._AUTOTUNE_PG
    with inductor.shared_autotuning():
        assert config.distributed_max_autotune_gemm is True
        distributed_autotune._AUTOTUNE_PG = "of a run that has ended"
    assert config.distributed_max_autotune_gemm is False
    assert distributed_autotune._AUTOTUNE_PG is before
