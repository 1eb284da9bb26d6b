"""Each workaround for torch, Lightning or W&B is still needed: where one of these fails, take the workaround out."""

import inspect

from lightning.pytorch.loggers import WandbLogger
from lightning.pytorch.plugins import MixedPrecision
from lightning.pytorch.strategies import DDPStrategy


def test_lightning_wraps_with_ddp_on_a_side_stream():
    """build.TrainingDDP._setup_model; https://github.com/Lightning-AI/pytorch-lightning/pull/21746"""
    assert "torch.cuda.Stream()" in inspect.getsource(DDPStrategy._setup_model)


def test_lightning_clips_beside_no_fused_optimizer_whether_a_scaler_is_there_or_not():
    """task.Task.configure_gradient_clipping; https://github.com/Lightning-AI/pytorch-lightning/pull/21436"""
    assert "scaler" not in inspect.getsource(MixedPrecision.clip_gradients)


def test_lightning_hands_wandb_an_argument_that_it_dropped():
    """build.trainer"""
    assert "anonymous" in WandbLogger(offline=True)._wandb_init
