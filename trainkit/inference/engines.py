"""The engines beside the network itself: a program is made of it, written into the run directory and loaded again."""

from collections.abc import Sequence
from pathlib import Path

from torch import Tensor, nn

from trainkit.compiler import packages
from trainkit.inference.cascade import CascadeStage
from trainkit.metrics.epochs import EpochMeter
from trainkit.metrics.timer import Stopwatch
from trainkit.results.cost import PackageCost
from trainkit.training.objective import Forward
from trainkit.training.precision import AUTOCAST_DTYPES

PACKAGE = "package.pt2"


def load_exported(stage: CascadeStage, inputs: Sequence[Tensor], run_dir: Path) -> PackageCost:
    """Replace the network of a stage by its exported graph, which is compiled, or not, as the network would be."""
    path = run_dir / PACKAGE
    export, load = Stopwatch(), Stopwatch()
    export.start()
    program = packages.export_network(stage.network, inputs)
    export.stop()
    packages.save_program(program, path)
    load.start()
    module = packages.load_program(path)
    load.stop()
    stage.network = Forward(module, nn.Identity())
    return PackageCost(export.total_s, load.total_s, path.stat().st_size)


def load_compiled(stage: CascadeStage, inputs: Sequence[Tensor], run_dir: Path, meter: EpochMeter) -> PackageCost:
    """Have a stage call the package that AOTInductor compiles of its network. The network leaves the device."""
    path = run_dir / PACKAGE
    export, load = Stopwatch(), Stopwatch()
    network: nn.Module = stage.network
    dtype = AUTOCAST_DTYPES.get(stage.config.amp.precision)
    if dtype is not None:
        network = packages.Autocast(network, dtype)
    export.start()
    program = packages.export_network(network, inputs)
    export.stop()
    meter.on_compile_start("forward")
    packages.compile_package(program, stage.config.compile.mode, path)
    meter.on_compile_end("forward")
    stage.network.cpu()
    del program
    load.start()
    stage.package = packages.load_package(path)
    load.stop()
    return PackageCost(export.total_s, load.total_s, path.stat().st_size)
