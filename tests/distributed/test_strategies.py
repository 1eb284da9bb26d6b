"""DDP as requested."""

import pytest

from trainkit.config.schema import DdpConfig, RunConfig, Strategy
from trainkit.distributed.strategies import TrainingDDP, build_strategy


def test_one_device_needs_no_ddp_unless_requested():
    assert build_strategy(RunConfig(), world_size=1) == "auto"
    assert isinstance(build_strategy(RunConfig(ddp=DdpConfig(strategy=Strategy.ddp)), world_size=1), TrainingDDP)


@pytest.mark.parametrize("broadcast_buffers", [True, False])
def test_ddp_gets_all_settings(broadcast_buffers):
    ddp = DdpConfig(bucket_cap_mb=7, static_graph=True, broadcast_buffers=broadcast_buffers)
    strategy = build_strategy(RunConfig(ddp=ddp), world_size=2)
    assert isinstance(strategy, TrainingDDP)
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
