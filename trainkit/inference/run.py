"""One forward-only run: from a typed config to a typed row of the kind `forward`, on success and on failure."""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, replace
from pathlib import Path

import torch
from lightning.pytorch.loggers import Logger

from trainkit.compiler.caches import compile_cache, require_writable_cache
from trainkit.compiler.startup import start_workers_for
from trainkit.config.errors import ConfigError
from trainkit.config.schema import RunConfig
from trainkit.config.validation import check
from trainkit.distributed.launch import Launch
from trainkit.distributed.topology import Devices, select_devices
from trainkit.distributed.watch import Watch
from trainkit.inference.cascade import build_stages
from trainkit.inference.serving import Serving
from trainkit.metrics.calls import CallMeters
from trainkit.results.files import end_row
from trainkit.results.requested import requested_fields
from trainkit.results.row import Row
from trainkit.training.logger import build_loggers, close_loggers
from trainkit.training.model import build_data
from trainkit.training.precision import attention_kernel
from trainkit.training.process import run_settings
from trainkit.training.status import print_error, raise_config_error
from trainkit.training.watching import record_error


def run_forward(config: RunConfig, fallback: Sequence[RunConfig] = ()) -> Row:
    """Call the network as requested, and return the row, which is now in the run directory.

    `fallback` are the composed stages of `forward.fallback`. A run that fails returns a row with its status and its
    reason. Raises ConfigError, before any device is touched, for a config that cannot run.
    """
    check(config)
    with run_settings(config), ExitStack() as contexts:
        if config.compile.mode != "eager":
            require_writable_cache()
        devices = _select_device(config)
        for stage_config in (config, *fallback):
            start_workers_for(stage_config.compile, devices.type, is_counted=False)
        data = build_data(config)
        meters = CallMeters(measured_first=bool(fallback))
        stages = build_stages(config, fallback, data, devices, meters)
        loggers = build_loggers(config)
        contexts.enter_context(attention_kernel(config, devices))
        contexts.enter_context(compile_cache(config.compile.cache, config.trainer.attention))
        for stage in stages:
            contexts.callback(stage.compiler.restore)
        device = torch.device("cuda", 0) if devices.type == "cuda" else torch.device("cpu")
        data.device_alone = device
        serving = Serving(config, stages, data, meters, device)
        for logger in loggers:
            logger.log_hyperparams(asdict(config))
        error: BaseException | None = None
        request = Row(status="interrupted", **requested_fields(config))
        watch = contexts.enter_context(Watch(Launch(Path(config.job.run_dir)), request))
        try:
            watch.begin()
            data.prepare_data()
            data.setup("predict")
            serving.begin()
            serving.run()
        except (Exception, KeyboardInterrupt, SystemExit) as caught:  # a failure is a row
            error = caught
            record_error(watch, error)
            if not isinstance(error, torch.AcceleratorError):  # after which CUDA answers nothing
                meters.end(complete=False)
        return finish_serving(serving, loggers, watch, error)


def _select_device(config: RunConfig) -> Devices:
    """The one device of the run. Raises ConfigError if there are several."""
    devices = select_devices(config)
    if devices.world_size > 1:
        raise ConfigError(
            f"trainer.devices = {devices.world_size}: a call is of one process; use trainer.devices=1 without torchrun"
        )
    return devices


def finish_serving(serving: Serving, loggers: list[Logger], watch: Watch, error: BaseException | None) -> Row:
    """Write the last row, close the loggers, and raise an error of the user's configuration again."""
    row = replace(serving.current_row(), status="ok")
    if error is not None:
        cause = watch.ranks.cause()
        row = replace(row, status=cause.status, error=cause.reason)
    settings = serving.last_stage.settings
    if settings and isinstance(error, Exception):
        error.add_note(f"forward.fallback, {settings}")
        row = replace(row, error=f"forward.fallback, {settings}: {row.error}")
    end_row(watch.launch.run_dir, row)
    watch.end(is_ok=error is None)
    close_loggers(loggers, row)
    print_error(error)
    raise_config_error(error)
    return row
