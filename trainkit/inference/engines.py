"""The engines beside the network itself: a program is made of it, written into the run directory and loaded again."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch import nn

from trainkit.compiler import packages
from trainkit.config.schema import Engine
from trainkit.inference.cascade import CascadeStage
from trainkit.inputs import Inputs
from trainkit.metrics.epochs import EpochMeter
from trainkit.metrics.memory import release_unused
from trainkit.metrics.timer import Stopwatch
from trainkit.results.calls import PackageCost
from trainkit.training.objective import Forward
from trainkit.training.precision import AUTOCAST_DTYPES

PACKAGE = "package.pt2"


class ExportedForward(Forward):
    """The graph of a whole Forward, which takes the inputs as one argument, whatever they are."""

    def forward(self, inputs: Inputs) -> Any:
        return self.net(inputs)


def load_program(
    stage: CascadeStage, engine: Engine, inputs: Sequence[Inputs], run_dir: Path, meter: EpochMeter
) -> PackageCost:
    """Have a stage call the program that an engine makes of its network, for these inputs.

    export: an exported graph, which is compiled, or not, as the network would be. aot_inductor: a package with
    parameters of its own; the network leaves the device.
    """
    path = run_dir / PACKAGE
    export, load = Stopwatch(), Stopwatch()
    network: nn.Module = stage.network
    if engine == "aot_inductor":
        network = _with_autocast(stage)
    export.start()
    program = packages.export_network(network, inputs)
    export.stop()
    if engine == "aot_inductor":
        meter.on_compile_start("forward")
        packages.compile_package(program, stage.config.compile.mode, path)
        meter.on_compile_end("forward")
        meter.on_package(packages.constant_bytes(program))
        stage.network.cpu()
    else:
        packages.save_program(program, path)
    del program
    load.start()
    if engine == "aot_inductor":
        stage.package = packages.load_package(path)
    else:
        stage.network = ExportedForward(packages.load_program(path), nn.Identity())
    load.stop()
    release_unused()  # of the network that was exported, which a process that only loads the file never has
    return PackageCost(export.total_s, load.total_s, path.stat().st_size)


def _with_autocast(stage: CascadeStage) -> nn.Module:
    """The network of a stage, which casts as requested when it is exported."""
    dtype = AUTOCAST_DTYPES.get(stage.config.amp.precision)
    if dtype is None:
        return stage.network
    return packages.Autocast(stage.network, dtype)
