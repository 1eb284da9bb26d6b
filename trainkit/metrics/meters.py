"""What a run cost: its epochs, each with its steps, compiles and peaks of memory, and the row's figures of them.

The device is synchronised at the borders of an epoch and of its validation only.
"""

import itertools
from collections import Counter
from collections.abc import Callable, Hashable
from statistics import median
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer

from trainkit.metrics.memory import Memory, highest, peak_memory, reset_peaks
from trainkit.metrics.steps import EpochCost, Step, num_warmup, percentile, periods_ms, relative, samples_per_s
from trainkit.metrics.timer import BatchClock, Stopwatch, mark, milliseconds
from trainkit.results.row import COMPILE_KINDS


class Costs:
    """What the epochs of a run cost, in `epochs`, each between `_begin` and `_close`.

    A step during which anything compiled, the warm-up after it (`num_warmup`), and one with fewer batches than others
    are not steady; every figure of a step is one of the steady steps.
    """

    def __init__(self) -> None:
        self.epochs: list[EpochCost] = []
        self.startup = Stopwatch()
        self.compiling = {kind: Stopwatch() for kind in COMPILE_KINDS}
        self.num_compiles = 0
        self._open = False  # an epoch is under way
        self._ran_eager = False
        self._in_compile_phase = False
        self._captured = False  # a CUDA graph, since the peaks were last read

    def start_up(self, compile_something: Callable[[], None]) -> None:
        """Take the time of the process's first compile, apart from all others."""
        self.startup.start()
        compile_something()
        self.startup.stop()

    # compile.Compiler calls these: two around every compile, one after a batch that ran uncompiled
    def on_eager(self) -> None:
        self._ran_eager = True

    def on_compile_start(self, kind: str) -> None:
        self.num_compiles += 1
        if self._open and not self._in_compile_phase:
            self._end_phase(compiled=False)
            self._in_compile_phase = True
        self._captured |= kind == "cudagraph"
        self.compiling[kind].start()

    def on_compile_end(self, kind: str) -> None:
        self.compiling[kind].stop()

    def compile_s(self) -> dict[str, float]:
        """Seconds spent on each kind of compile so far."""
        return {kind: watch.total_s for kind, watch in self.compiling.items()}

    def _begin(self, device: torch.device) -> None:
        """Begin an epoch: from here on peaks are its own."""
        self._device = device
        self._training, self._validating = Stopwatch(), Stopwatch()
        self._compiled_in_validation = False
        self._compile_s_before = self.compile_s()
        self._peaks: dict[bool, Memory | None] = {False: None, True: None}  # of the steady phase, of the compiling one
        self._in_compile_phase = False
        reset_peaks(device)
        self._synchronize()
        self._open = True
        self._training.start()

    def _close(self, steps: Callable[[], list[Step]], complete: bool) -> EpochCost:
        """End the epoch; its steps are asked for when the device has finished them."""
        self._synchronize()
        self._open = False
        self._training.stop()
        self._validating.stop()
        self._end_phase(self._in_compile_phase)
        return EpochCost(
            complete,
            self._training.total_s,
            self._validating.total_s or None,
            {kind: total - self._compile_s_before[kind] for kind, total in self.compile_s().items()},
            self._compiled_in_validation,
            steps(),
            compile_peak=self._peaks[True],
            steady_peak=self._peaks[False],
        )

    def _leave_compile_phase(self) -> None:
        if self._in_compile_phase:
            self._end_phase(compiled=True)
            self._in_compile_phase = False

    def _end_phase(self, compiled: bool) -> None:
        """Read the peaks since the last phase, which asks the allocator on the host and waits for nothing."""
        self._peaks[compiled] = highest([self._peaks[compiled], peak_memory(self._device, self._captured)])
        self._captured = False
        reset_peaks(self._device)

    def _synchronize(self) -> None:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)

    def classified(self) -> list[list[str]]:
        """Of each epoch so far, what each step is: compiling, warm-up, steady, or short (fewer batches than others)."""
        full = max((step.num_batches for epoch in self.epochs for step in epoch.steps), default=1)
        kinds: list[list[str]] = []
        stretches: list[list[tuple[int, int]]] = [[]]  # the steps between two compiles, by epoch and place
        for number, epoch in enumerate(self.epochs):
            kinds.append([])
            for place, step in enumerate(epoch.steps):
                kinds[-1].append("compiling" if step.compiled else "steady" if step.num_batches == full else "short")
                if step.compiled:
                    stretches.append([])
                elif step.num_batches == full:
                    stretches[-1].append((number, place))
        for stretch in stretches:
            steps = [self.epochs[number].steps[place] for number, place in stretch]
            for number, place in stretch[: num_warmup(relative(steps))]:
                kinds[number][place] = "warm-up"
        return kinds

    def steady_steps(self) -> list[list[Step]]:
        """The steady steps of each epoch so far."""
        return self._steady(self.classified())

    def _steady(self, classified: list[list[str]]) -> list[list[Step]]:
        return [
            [step for step, kind in zip(epoch.steps, kinds, strict=True) if kind == "steady"]
            for epoch, kinds in zip(self.epochs, classified, strict=True)
        ]

    def settled(self, epochs: list[EpochCost]) -> list[EpochCost]:
        """Of these epochs those that compare between modes: without the run's first one where there are others."""
        return [epoch for epoch in epochs if epoch is not self.epochs[0]] or epochs

    def summary(self, autotune_s: dict[str, float], tells_eager: bool, skips_function: bool = False) -> dict[str, Any]:
        """The cost fields of results.Row. `autotune_s` is the share of trying out kernels in each kind of compile;
        `tells_eager`: what ran uncompiled was told, but for functions that torch.compile leaves to Python for good
        (`skips_function`), of which it tells once. None where nothing steady was seen."""
        num_eager = None
        if tells_eager:
            num_eager = sum(step.eager or skips_function for epoch in self.epochs for step in epoch.steps)
        classified = self.classified()
        by_epoch = self._steady(classified)
        steady = [step for epoch in by_epoch for step in epoch]
        kinds = [kind for epoch in classified for kind in epoch]
        times = [step.time_ms for step in steady]
        complete = [epoch for epoch in self.epochs if epoch.complete]
        trained = self.settled([epoch for epoch in complete if not epoch.compiled_in_training])
        validated = self.settled([epoch for epoch in complete if not epoch.compiled_in_validation])
        val_times = [epoch.val_time_s for epoch in validated if epoch.val_time_s is not None]
        p25, p75 = percentile(times, 25), percentile(times, 75)
        compiling = highest([epoch.compile_peak for epoch in self.epochs])
        running = highest([epoch.steady_peak for epoch in self.epochs]) or compiling
        return {
            **self._compile_summary(autotune_s),
            "num_steps": len(kinds),
            "num_compiling_steps": kinds.count("compiling"),
            "num_warmup_steps": kinds.count("warm-up"),
            "num_steady_steps": len(steady),
            "num_compiled_steps": None if num_eager is None else len(kinds) - num_eager,
            "num_eager_steps": num_eager,
            "step_time_ms": self._typical_ms(by_epoch),
            "step_time_ms_p50": percentile(times, 50),
            "step_time_ms_p90": percentile(times, 90),
            "step_time_ms_p99": percentile(times, 99),
            "step_time_ms_iqr": None if p25 is None or p75 is None else p75 - p25,
            "rank_spread_ms": percentile([step.rank_spread_ms for step in steady], 50),
            "epoch_train_time_s": median(epoch.train_time_s for epoch in trained) if trained else None,
            "epoch_val_time_s": median(val_times) if val_times else None,
            "samples_per_s": samples_per_s(steady),
            "data_wait_frac": sum(step.wait_ms for step in steady) / periods_ms(steady) if steady else None,
            "peak_allocated_bytes": running and running.allocated,
            "peak_reserved_bytes": running and running.reserved,
            "peak_device_bytes": running and running.device,
            "compile_peak_allocated_bytes": compiling and compiling.allocated,
            "compile_peak_reserved_bytes": compiling and compiling.reserved,
            "compile_peak_device_bytes": compiling and compiling.device,
        }

    def _typical_ms(self, steady: list[list[Step]]) -> float | None:
        """The median of the steady steps that are alike, averaged over all steps of the epochs in which there are
        steady ones. Over steps of two shapes a plain median would jump from one to the other by the few that are left
        out because they compiled. A shape without a steady step does not count."""
        times_ms: dict[Hashable, list[float]] = {}
        for step in itertools.chain(*steady):
            times_ms.setdefault(step.alike, []).append(step.time_ms)
        counted = [epoch.steps for epoch, found in zip(self.epochs, steady, strict=True) if found]
        numbers = Counter(step.alike for step in itertools.chain(*counted))
        total = sum(numbers[alike] for alike in times_ms)
        return sum(numbers[alike] * median(times) for alike, times in times_ms.items()) / total if total else None

    def _compile_summary(self, autotune_s: dict[str, float]) -> dict[str, float]:
        """Start-up, the total, and the parts that add up to it: the slowest rank's, and trying out kernels apart."""
        of_epochs = {kind: sum(epoch.compile_s[kind] for epoch in self.epochs) for kind in COMPILE_KINDS}
        parts = max(of_epochs, self.compile_s(), key=lambda parts: sum(parts.values()))
        for kind, seconds in autotune_s.items():
            within = 0.0 if kind == "autotune" else min(seconds, parts[kind])
            found = seconds if kind == "autotune" else within
            parts = parts | {kind: parts[kind] - within}
            parts["autotune"] += found
        named = {f"compile_{kind}_s": seconds for kind, seconds in parts.items()}
        return {"compile_startup_s": self.startup.total_s, "compile_time_s": sum(parts.values())} | named


class Meters(Costs, Callback):
    """Measures every epoch of a fit.

    A step is from the moment its first batch is there to the end of its optimizer step, so with accumulation it has
    several batches.
    """

    def __init__(self) -> None:
        super().__init__()
        self.batch_clock = BatchClock()

    def on_train_epoch_start(self, trainer: Trainer, task: LightningModule) -> None:
        self._begin(trainer.strategy.root_device)
        self._waits_ms: list[float] = []  # of each batch
        self._compiled: list[bool] = []  # in each batch
        self._eager: list[bool] = []
        self._num_samples: list[int] = []
        self._shapes: list[tuple[int, ...]] = []  # of the inputs
        self._marks = [self._mark()]  # the epoch's start, then start, end, start, end, ... of the batches

    def on_train_batch_start(self, trainer: Trainer, task: LightningModule, batch: Any, batch_idx: int) -> None:
        self._compiles_before, self._ran_eager = self.num_compiles, False
        self._num_samples.append(len(batch[0]))
        self._shapes.append(tuple(batch[0].shape))
        self._waits_ms.append(self.batch_clock.lap_ms())
        self._marks.append(self._mark())

    def on_train_batch_end(
        self, trainer: Trainer, task: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        self._marks.append(self._mark())
        self._compiled.append(self.num_compiles > self._compiles_before)
        self._eager.append(self._ran_eager)
        self._leave_compile_phase()

    def on_validation_start(self, trainer: Trainer, task: LightningModule) -> None:
        self._synchronize()
        self._training.stop()
        self._validating.start()
        self._compiles_before = self.num_compiles

    def on_validation_end(self, trainer: Trainer, task: LightningModule) -> None:
        self._synchronize()
        self._validating.stop()
        self._compiled_in_validation |= self.num_compiles > self._compiles_before
        self._leave_compile_phase()

    def on_train_epoch_end(self, trainer: Trainer, task: LightningModule) -> None:
        self.epochs.append(self._close_fit(trainer, complete=True))

    def on_exception(self, trainer: Trainer, task: LightningModule, exception: BaseException) -> None:
        """Keep what was measured of the epoch that broke off, of this rank alone: the others may be gone."""
        if self._open and not isinstance(exception, torch.AcceleratorError):  # after which CUDA answers nothing
            for watch in self.compiling.values():
                watch.stop()
            self.epochs.append(self._close_fit(trainer, complete=False))

    def _close_fit(self, trainer: Trainer, complete: bool) -> EpochCost:
        return self._close(lambda: self._steps(trainer.accumulate_grad_batches), complete)

    def _mark(self) -> Any:
        return mark(self._device.type == "cuda")

    def _steps(self, batches_per_step: int) -> list[Step]:
        """The epoch's steps; the device must have finished them.

        On a GPU only a wait in which the device stood idle counts as one: else the host was ahead of it.
        """
        starts, ends = self._marks[1::2], self._marks[2::2]
        before = [self._marks[0], *ends]
        waits_ms = [
            min(wait_ms, milliseconds(end, start))
            for wait_ms, end, start in zip(self._waits_ms, before, starts, strict=False)
        ]
        steps = []
        for first in range(0, len(ends), batches_per_step):
            last = min(first + batches_per_step, len(ends)) - 1
            steps.append(
                Step(
                    milliseconds(starts[first], ends[last]),
                    milliseconds(before[first], ends[last]),
                    sum(waits_ms[first : last + 1]),
                    last + 1 - first,
                    any(self._compiled[first : last + 1]),
                    eager=any(self._eager[first : last + 1]),
                    num_samples=sum(self._num_samples[first : last + 1]),
                    alike=tuple(self._shapes[first : last + 1]),
                )
            )
        return steps
