"""The step time of trainkit beside that of a bare PyTorch loop of the same objective, interleaved, in one run.

    python benchmarks/overhead.py model=resnet18 data=synthetic data.batch_size=512 amp=bf16 [...]

After each epoch of the run a bare loop makes the same number of steps with a network of its own. Both are timed from
the start of a step to the start of the next one, without the first SETTLING steps. Prints the medians over the epochs
after the first two, and the median ratio.
"""

import sys
import tempfile
import time
from pathlib import Path
from statistics import median

import torch

from trainkit import cli
from trainkit.config.composition import compose_config
from trainkit.config.schema import RunConfig
from trainkit.distributed.topology import select_devices
from trainkit.results.epoch import EpochRecord
from trainkit.training.model import build_data, build_model
from trainkit.training.objective import build_objective
from trainkit.training.optimizer import build_optimizer
from trainkit.training.run import run

SETTLING = 3  # trainkit leaves out as many at the start


class BareLoop:
    """The training loop anyone would write: autocast, compiled objective, backward, optimizer."""

    def __init__(self, config: RunConfig):
        devices, data = select_devices(config), build_data(config)
        self.device = torch.device(devices.type)
        net = build_model(config, data, devices)
        self.objective = build_objective(config, net, data.prepare).to(self.device).train()
        self.optimizer = build_optimizer(config)(self.objective.parameters())
        data.setup("fit")
        self.batches = []
        for inputs, targets in data.train_dataloader().batches:
            self.batches.append((inputs.to(self.device), targets.to(self.device)))
        self.bf16 = config.amp.precision == "bf16-mixed"
        if config.compile.mode != "eager":
            self.objective.compile(mode=config.compile.mode, dynamic=config.compile.dynamic)

    def step_ms(self, num_steps: int) -> float:
        """Mean milliseconds from one step to the next, over `num_steps` steps after SETTLING ones."""
        for step in range(SETTLING + num_steps):
            if step == SETTLING:
                self._synchronize()
                start = time.perf_counter()
            inputs, targets = self.batches[step % len(self.batches)]
            # Once anyone in a process marks its steps, as trainkit does, a loop that does not records graphs for ever.
            torch.compiler.cudagraph_mark_step_begin()
            with torch.autocast(self.device.type, torch.bfloat16, enabled=self.bf16):
                loss = self.objective(inputs, targets)
            loss.backward()
            self.optimizer.step()
            self.optimizer.zero_grad(set_to_none=True)
        self._synchronize()
        return (time.perf_counter() - start) / num_steps * 1e3

    def _synchronize(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize()


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, cli.one_line_errors():
        overrides = ["logger=none", "trainer.max_epochs=12", "data.num_batches=100", *sys.argv[1:]]
        config = compose_config(overrides, Path(__file__).parent.parent / "conf", folder)
        torch.set_float32_matmul_precision(config.amp.matmul_precision)
        loop = BareLoop(config)
        trainkit_ms: list[float] = []
        bare_ms: list[float] = []

        def after_epoch(record: EpochRecord) -> None:
            assert record.samples_per_s is not None, "an epoch without steady steps: make it longer"
            trainkit_ms.append(record.num_samples / record.num_steps / record.samples_per_s * 1e3)
            bare_ms.append(loop.step_ms(record.num_steps))
            figures = f"trainkit {trainkit_ms[-1]:.3f} ms a step, bare loop {bare_ms[-1]:.3f} ms"
            print(f"epoch {record.epoch}: {figures}", flush=True)

        row = run(config, on_epoch=after_epoch)
    if row.status != "ok":
        sys.exit(f"overhead: the run ended {row.status}: {row.error}")
    settled_ms, settled_bare_ms = trainkit_ms[2:], bare_ms[2:]  # the first two epochs have compiles and warm-up
    ratios = [ours / bare for ours, bare in zip(settled_ms, settled_bare_ms, strict=True)]
    print(f"{row.model} {row.compile_mode} {row.precision} batch {row.batch_size} on {row.device_name}")
    print(
        f"trainkit {median(settled_ms):.3f} ms a step, bare loop {median(settled_bare_ms):.3f} ms, {len(ratios)} rounds"
    )
    print(f"ratio {median(ratios):.4f} (min {min(ratios):.4f}, max {max(ratios):.4f})")


if __name__ == "__main__":
    main()
