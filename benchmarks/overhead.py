"""trainkit's step and epoch, and a plain Lightning script's, beside a bare PyTorch loop of the same objective.

    python benchmarks/overhead.py [--work 0.5ms ...] [--mode eager ...] [--rounds N] [--repeats N] [override ...]
    python benchmarks/overhead.py --work own model=resnet18 data.batch_size=512 data.num_batches=40 amp=bf16

A work is named by the time of its bare eager step; `own` is the given overrides alone. Each work and mode has a
process of its own. A round is an epoch of trainkit's run, as many bare steps and an epoch of the plain Trainer; the
latter two alternate. A ratio is to the bare step of the round. Median (min-max) over the rounds are printed, and
with repeats the speed-up of each mode over eager, in bare loops and in trainkit's steps, with its 95 % interval. On a
CPU that others use set OMP_NUM_THREADS=1: threads that wait for a busy core can make any step 100 times as long.

    bare ms    mean time of a step, batches on the device, without the first SETTLING steps
    step p50   the record's step_time_ms_p50; step mean: from the start of a steady step to the start of the next
    epoch      the record's train_time_s / steps; Lightning: the plain Trainer's epoch / steps
"""

import argparse
import sys
import tempfile
import time
import traceback
from collections import defaultdict
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from statistics import median

import torch
from lightning import LightningModule, Trainer
from torch import Tensor

from trainkit import cli
from trainkit.compiler.apply import give_own_code
from trainkit.config.composition import compose_config
from trainkit.config.schema import Mode, RunConfig
from trainkit.data.module import DataModule
from trainkit.distributed.topology import select_devices
from trainkit.metrics.environment import machine_columns
from trainkit.metrics.timer import synchronize
from trainkit.results.epoch import EpochRecord
from trainkit.stats import Ratio, ratio
from trainkit.training.model import build_data, build_model
from trainkit.training.objective import Objective, build_objective
from trainkit.training.optimizer import build_optimizer
from trainkit.training.process import run_settings
from trainkit.training.run import run

SETTLING = 3  # trainkit leaves out as many at the start
WARM_UP_ROUNDS = 2  # with the compiles; they do not count
MODES = {"cpu": ["eager", "default"], "cuda": ["eager", "default", "reduce-overhead"]}  # a CPU has no CUDA graphs
COLUMNS = ("step p50", "step mean", "epoch", "Lightning")

# The overrides of each work, with the steps of an epoch of about 0.4 s
SIMPLE_NET = "model=simple_net data.channels=2 data.image_size=16"
WORKS = {
    "cpu": {
        "0.5ms": f"{SIMPLE_NET} data.batch_size=16 data.num_batches=600",
        "1ms": f"{SIMPLE_NET} data.batch_size=72 data.num_batches=400",
        "5ms": f"{SIMPLE_NET} data.batch_size=576 data.num_batches=80",
        "20ms": f"{SIMPLE_NET} data.batch_size=2560 data.num_batches=20",
    },
    "cuda": {
        "0.5ms": f"{SIMPLE_NET} data.batch_size=16 data.num_batches=600 amp=bf16",
        "1ms": "model=simple_net model.width=4096 data.batch_size=8192 data.num_batches=400 amp=bf16",
        "10ms": "model=resnet18 data.batch_size=256 data.num_batches=80 amp=bf16",
        "40ms": "model=resnet18 data.batch_size=1024 data.num_batches=20 amp=bf16",
    },
}


@dataclass(frozen=True)
class StepTimes:
    """The step of one process: medians over its rounds, in milliseconds."""

    bare_ms: float
    row_ms: float


def build_arm(config: RunConfig, data: DataModule) -> Objective:
    """A network with its loss, compiled, that shares no compiled code with other networks of the process."""
    objective = build_objective(config, build_model(config, data, select_devices(config)), data.prepare).train()
    give_own_code(objective)
    if config.compile.mode != "eager":
        objective.compile(mode=config.compile.mode, dynamic=config.compile.dynamic, backend=config.compile.backend)
    return objective


class BareLoop:
    """The training loop anyone would write: autocast, compiled objective, backward, optimizer."""

    def __init__(self, config: RunConfig, data: DataModule):
        self.device = data.device
        self.objective = build_arm(config, data).to(self.device)
        self.optimizer = build_optimizer(config)(self.objective)
        self.batches = data.train_dataloader().batches
        self.bf16 = config.amp.precision == "bf16-mixed"

    def step_ms(self, num_steps: int) -> float:
        """Mean milliseconds from one step to the next, over `num_steps` steps after SETTLING ones."""
        for step in range(SETTLING + num_steps):
            if step == SETTLING:
                synchronize(self.device)
                start = time.perf_counter()
            inputs, targets = self.batches[step % len(self.batches)]
            # Once anyone in a process marks its steps, as trainkit does, a loop that does not records graphs for ever.
            torch.compiler.cudagraph_mark_step_begin()
            with torch.autocast(self.device.type, torch.bfloat16, enabled=self.bf16):
                loss = self.objective(inputs, targets)
            loss.backward()
            self.optimizer.step()
            self.optimizer.zero_grad(set_to_none=True)
        synchronize(self.device)
        return (time.perf_counter() - start) / num_steps * 1e3


class PlainModule(LightningModule):
    """The LightningModule of a plain script. Its epochs are timed by its own hooks."""

    def __init__(self, config: RunConfig, data: DataModule):
        super().__init__()
        self.objective = build_arm(config, data)
        self.make_optimizer = build_optimizer(config)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return self.make_optimizer(self)

    def training_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> Tensor:
        torch.compiler.cudagraph_mark_step_begin()  # as in BareLoop
        loss: Tensor = self.objective(*batch)
        return loss

    def on_train_epoch_start(self) -> None:
        synchronize(self.device)
        self.epoch_start = time.perf_counter()

    def on_train_epoch_end(self) -> None:
        synchronize(self.device)
        self.epoch_ms = (time.perf_counter() - self.epoch_start) * 1e3


class Rounds(PlainModule):
    """The plain module, in whose fit trainkit's run is made.

    It has one fit for all rounds: the end of a fit moves the network, so that CUDA graphs are recorded again, and
    empties the allocator's cache, from which the others have their memory.
    """

    def __init__(self, config: RunConfig, data: DataModule):
        super().__init__(config, data)
        self.config = config
        self.bare_loop = BareLoop(config, data)
        self.bare_ms: list[float] = []
        self.row_ms: list[float] = []
        self.ratios: dict[str, list[float]] = {column: [] for column in COLUMNS}

    def on_train_start(self) -> None:
        row = run(self.config, on_epoch=self.after_epoch)
        if row.status != "ok":
            sys.exit(f"overhead: the run ended {row.status}: {row.error}")

    def after_epoch(self, record: EpochRecord) -> None:
        """Make the round of an epoch of trainkit's run."""
        num_steps = record.num_steps
        if record.epoch % 2:
            self.train_plain_epoch()
        bare_ms = self.bare_loop.step_ms(num_steps)
        if not record.epoch % 2:
            self.train_plain_epoch()
        if record.epoch < WARM_UP_ROUNDS:
            return
        if record.samples_per_s is None or record.step_time_ms_p50 is None:
            sys.exit("overhead: an epoch without steady steps; raise data.num_batches")
        mean_ms = record.num_samples / num_steps / record.samples_per_s * 1e3
        times_ms = (record.step_time_ms_p50, mean_ms, record.train_time_s * 1e3 / num_steps, self.epoch_ms / num_steps)
        self.bare_ms.append(bare_ms)
        self.row_ms.append(record.step_time_ms_p50)
        for column, time_ms in zip(COLUMNS, times_ms, strict=True):
            self.ratios[column].append(time_ms / bare_ms)

    def train_plain_epoch(self) -> None:
        """One turn of the loop in FitLoop.run(), which then finds no epoch left."""
        loop = self.trainer.fit_loop
        loop.on_advance_start()
        loop.advance()
        loop.on_advance_end()


def measure(name: str, overrides: list[str]) -> StepTimes:
    """Measure one work in one mode, and print its line."""
    with tempfile.TemporaryDirectory() as folder, cli.one_line_errors():
        config = compose_config(overrides, Path(__file__).parent.parent / "conf", folder)
        with run_settings(config):
            rounds = measure_rounds(config)
    network = f"{name} {config.job.model} x{config.data['batch_size']}"
    line = f"{network:24}{config.compile.mode:16}{median(rounds.bare_ms):>8.3f}"
    for ratios in rounds.ratios.values():
        line += f"{median(ratios):>9.3f} ({min(ratios):.3f}-{max(ratios):.3f})"
    print(line, flush=True)
    return StepTimes(median(rounds.bare_ms), median(rounds.row_ms))


def measure_alone(name: str, overrides: list[str]) -> StepTimes | None:
    """`measure` in a process of its own. None if it failed; its error is printed."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:  # spawn: CUDA cannot be forked
        measured = pool.submit(measure, name, overrides)
        error = measured.exception()
    if error is None:
        return measured.result()
    if not isinstance(error, SystemExit):  # which has printed its line
        traceback.print_exception(error)
    return None


def print_speed_ups(work: str, times: dict[str, list[StepTimes]]) -> None:
    """Print the speed-up of each mode over eager, measured with bare loops and with trainkit's steps."""
    for mode, repeats in times.items():
        if mode == "eager" or "eager" not in times:
            continue
        bare = ratio([step.bare_ms for step in times["eager"]], [step.bare_ms for step in repeats])
        rows = ratio([step.row_ms for step in times["eager"]], [step.row_ms for step in repeats])
        print(f"{work}: {mode} over eager: bare loops {shown(bare)}, trainkit's steps {shown(rows)}", flush=True)


def shown(speed_up: Ratio) -> str:
    if speed_up.low is None:
        return f"{speed_up.value:.3f}"
    return f"{speed_up.value:.3f} ({speed_up.low:.3f}-{speed_up.high:.3f})"


def measure_rounds(config: RunConfig) -> Rounds:
    data = build_data(config)
    data.device_alone = torch.device(select_devices(config).type)
    data.setup("fit")
    rounds = Rounds(config, data)
    trainer = Trainer(
        accelerator=config.trainer.accelerator, devices=1,
        precision=config.amp.precision,  # type: ignore[arg-type]  # which is one of Lightning's words
        max_epochs=config.trainer.max_epochs, limit_val_batches=0, logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False,
    )  # fmt: skip
    trainer.fit(rounds, data.train_dataloader())
    return rounds


def list_overrides(work: str, mode: str, options: argparse.Namespace) -> list[str]:
    accelerator = "gpu" if options.device == "cuda" else "cpu"
    shared = ["logger=none", "data=synthetic", "trainer.limit_val_batches=0"]
    shared += [f"trainer.accelerator={accelerator}", f"trainer.max_epochs={WARM_UP_ROUNDS + options.rounds}"]
    return [*shared, f"compile.mode={mode}", *WORKS[options.device].get(work, "").split(), *options.overrides]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=tuple(WORKS), default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--work", action="append", metavar="WORK")
    parser.add_argument("--mode", action="append", choices=list(Mode))
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("overrides", nargs="*")
    options = parser.parse_intermixed_args()
    unknown = set(options.work or ()) - {*WORKS[options.device], "own"}
    if unknown:
        names = ", ".join(WORKS[options.device])
        parser.error(f"--work {min(unknown)}: the works of {options.device} are {names}, own")
    machine = machine_columns(torch.device(options.device))
    print(f"{machine['device_name']}, torch {torch.__version__}, {options.rounds} rounds")
    print(f"{'work':24}{'mode':16}{'bare ms':>8}" + "".join(f"{column:>22}" for column in COLUMNS), flush=True)
    times: dict[str, dict[str, list[StepTimes]]] = defaultdict(lambda: defaultdict(list))
    failed = False
    works, modes = options.work or WORKS[options.device], options.mode or MODES[options.device]
    for _, work, mode in product(range(options.repeats), works, modes):
        measured = measure_alone(work, list_overrides(work, mode, options))
        if measured is None:
            failed = True
        else:
            times[work][mode].append(measured)
    if options.repeats > 1:
        for work in times:
            print_speed_ups(work, times[work])
    sys.exit(failed)


if __name__ == "__main__":
    main()
