"""Strategies as requested."""

import pytest
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import bf16_compress_hook

from trainkit.config.errors import ConfigError
from trainkit.config.schema import Compression, DdpConfig, RunConfig, Strategy
from trainkit.distributed.strategies import build_strategy, strategy_name


def requested(strategy: str, **settings) -> RunConfig:
    return RunConfig(ddp=DdpConfig(strategy=Strategy[strategy], **settings))


@pytest.mark.parametrize(
    ("strategy", "world_size", "name"),
    [
        ("auto", 2, "ddp"),
        ("ddp", 1, "ddp"),
        ("compiled", 2, "compiled"),
        ("fsdp2", 2, "fsdp2"),
    ],
)
def test_the_row_names_the_strategy(strategy, world_size, name):
    assert strategy_name(build_strategy(requested(strategy), world_size)) == name


def test_one_device_has_nothing_to_average():
    assert build_strategy(RunConfig(), world_size=1) == "auto"
    assert build_strategy(requested("compiled"), world_size=1) == "auto"
    with pytest.raises(
        ConfigError, match=r"ddp\.strategy = fsdp2: shards over several processes, and this run has one"
    ):
        build_strategy(requested("fsdp2"), world_size=1)


@pytest.mark.parametrize("broadcast_buffers", [True, False])
def test_ddp_gets_all_settings(broadcast_buffers):
    config = requested("auto", bucket_cap_mb=7, static_graph=True, broadcast_buffers=broadcast_buffers)
    strategy = build_strategy(config, world_size=2)
    arguments = dict(strategy._ddp_kwargs)
    buffers = arguments.pop("forward_sync_buffers", None)
    if buffers is None:  # before torch 2.13
        buffers = arguments.pop("broadcast_buffers")
    assert buffers == broadcast_buffers
    assert arguments == {
        "bucket_cap_mb": 7,
        "static_graph": True,
        "gradient_as_bucket_view": True,
        "find_unused_parameters": False,
    }
    assert strategy._ddp_comm_hook is None


def test_ddp_compresses_with_torchs_hook():
    strategy = build_strategy(requested("ddp", compression=Compression.bf16), world_size=2)
    assert strategy._ddp_comm_hook is bf16_compress_hook
