"""The calls of a forward-only run: they measure the stages of a cascade, then serve the requests."""

import copy
import itertools
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from trainkit.compiler import dynamo
from trainkit.compiler.startup import start_workers_for
from trainkit.config.schema import RunConfig
from trainkit.data.module import DataModule
from trainkit.inference.accuracy import accuracy_of, answer_of
from trainkit.inference.batches import inputs_by_shape, requested_batches
from trainkit.inference.cascade import CascadeStage
from trainkit.inference.deadlines import Answer, Requests, Response, choose_calls, requested_traffic, simulate
from trainkit.inference.engines import load_program
from trainkit.inference.parity import check_outputs
from trainkit.inference.summary import first_call_columns, miss_frac, request_columns, stage_columns
from trainkit.inference.windows import call_windows
from trainkit.inputs import Batch, Inputs, Shape, shape_of, to_device
from trainkit.metrics.calls import CallMeters
from trainkit.metrics.environment import machine_columns
from trainkit.metrics.foreign import ForeignProcesses
from trainkit.metrics.steps import Step, StepKind, num_warmup
from trainkit.results.files import set_aside, write_row
from trainkit.results.requested import requested_fields
from trainkit.results.row import Row
from trainkit.results.tuned import warn_of_other_machine
from trainkit.training import numerics
from trainkit.training.objective import Forward

NUM_MEASURING = 32  # calls of each stage with each shape before the first request


class Serving:
    """Calls the stages with a run's batches, and makes the row of the measurements."""

    def __init__(
        self,
        config: RunConfig,
        stages: Sequence[CascadeStage],
        data: DataModule,
        meters: CallMeters,
        device: torch.device,
    ):
        self.last_stage = stages[0]  # of the last call
        self._config, self._stages, self._data, self._meters, self._device = config, stages, data, meters, device
        self._row = Row(status="interrupted", **requested_fields(config))
        self._traffic = requested_traffic(config)
        self._requests = Requests(self._traffic) if self._traffic and len(stages) > 1 else None
        self._answers: list[Answer] = []  # one for each batch of the calls, that of the stage that served it
        self._num_targets_once = 0  # of the batches' first epoch

    def begin(self) -> None:
        """Write the first row, `interrupted`, and compile something small, apart from the networks' own compiles."""
        self._foreign_processes = ForeignProcesses(self._device)
        for stage in self._stages:
            start_workers_for(stage.config.compile, self._device.type, is_counted=True)
        accelerator = "gpu" if self._device.type == "cuda" else "cpu"
        self._row = replace(self._row, strategy="single", accelerator=accelerator, **machine_columns(self._device))
        warn_of_other_machine(self._config.tuned, self._row)
        set_aside(self._config.job.run_dir)
        write_row(self._config.job.run_dir, self._row)
        compiled_stages = [stage for stage in self._stages if stage.config.compile.mode != "eager"]
        first = compiled_stages[0] if compiled_stages else self._stages[0]
        with first.compiler as compiler:
            self._meters.epoch_meter.compile_clock.start_up(lambda: compiler.start_up(self._device))

    def run(self) -> None:
        """Measure each stage if there are several, then serve `forward.num_calls` requests."""
        eager = copy.deepcopy(self._stages[0].network) if self._config.check else None
        for stage in self._stages:
            stage.place(self._device)
        if self._config.forward.engine != "network":
            self._load_program()
        for stage in self._stages:
            stage.compile()
        if len(self._stages) > 1:
            self._measure_stages()
        self._meters.begin(self._device)
        batches = requested_batches(self._data, self._config.forward.num_calls)
        if self._config.forward.timing == "stream":
            call_windows(self._stages[0], batches, self._meters, self._device)
        else:
            for epoch, batch in batches:
                self._serve(epoch, batch)
        self._meters.end(complete=True)
        self._row = replace(self._row, foreign_processes=self._foreign_processes.count())
        if eager is not None:
            self._check(eager)

    def _check(self, eager: Forward) -> None:
        """Compare the outputs of the first batches with those of an eager copy."""
        self._stages[0].keep_facts()  # of the calls that were measured
        num_checked = min(numerics.STEPS, self._config.forward.num_calls)
        batches = [inputs for _, (inputs, _) in requested_batches(self._data, num_checked)]
        answer = check_outputs(self._stages[0], eager, batches, self._device)
        self._row = replace(self._row, **vars(answer))

    def _load_program(self) -> None:
        """Replace the network by the program of `forward.engine`, for the shapes that will come."""
        stage, run_dir = self._stages[0], Path(self._config.job.run_dir)
        inputs_of = inputs_by_shape(self._data, self._config.forward.num_calls)
        inputs = to_device(list(inputs_of.values()), self._device)
        cost = load_program(stage, self._config.forward.engine, inputs, run_dir, self._meters.epoch_meter)
        self._row = replace(self._row, **vars(cost))

    def _measure_stages(self) -> None:
        """Call each stage NUM_MEASURING times with each shape that will come, and then with all batches for its
        accuracy."""
        inputs_of = inputs_by_shape(self._data, self._config.forward.num_calls)
        self._meters.begin(self._device)
        for index, stage in enumerate(self._stages):
            dynamo.reset_counts()
            for shape, inputs in inputs_of.items():
                times_ms = []
                for _ in range(NUM_MEASURING):
                    _, step = self._call(index, to_device(inputs, self._device))
                    if not step.compiled:
                        times_ms.append(step.time_ms)
                stage.times_ms[shape] = times_ms[num_warmup(times_ms) :]
            stage.accuracy = accuracy_of(stage, self._data, self._config.forward.num_calls, self._device)
            stage.keep_facts()
        self._meters.end(complete=True)

    def _serve(self, epoch: int, batch: Batch) -> None:
        """Serve a batch: of several stages by the one that fits into the remaining time."""
        inputs, targets = to_device(batch, self._device)
        answers, compiled = [], False
        for index in self._choose_calls(shape_of(inputs)):
            outputs, step = self._call(index, inputs)
            answers.append(answer_of(index, step.time_ms, outputs, targets, self._data))
            compiled = compiled or step.compiled
        answer = answers[-1]
        if self._requests is not None and not compiled:
            answer = self._requests.serve(answers).answer
            for called in answers:
                self._stages[called.stage].times_ms[shape_of(inputs)].append(called.time_ms)
        self._answers.append(answer)
        if epoch == 0:
            self._num_targets_once += answer.num_targets

    def _choose_calls(self, shape: Shape) -> list[int]:
        """The stages to call for the next request, whose inputs have this shape."""
        if self._requests is None:
            return [0]
        expected_ms = [stage.expected_ms(shape) for stage in self._stages]
        typical_ms = [stage.typical_ms(shape) for stage in self._stages]
        return choose_calls(expected_ms, typical_ms, self._requests.remaining_ms, self._config.forward.late)

    def _call(self, index: int, inputs: Inputs) -> tuple[Any, Step]:
        """Call a stage. Returns its outputs and the measurement."""
        stage = self.last_stage = self._stages[index]
        with stage.ready(self._device):
            return self._meters.call(partial(stage.call, inputs), index, shape_of(inputs))

    def current_row(self) -> Row:
        """The row with all measurements so far."""
        responses: Sequence[Response] = []
        all_calls_miss_frac = None
        if self._requests is not None:
            responses = self._requests.responses
        elif self._traffic is not None:
            steady = [kind is StepKind.STEADY for kind in itertools.chain(*self._meters.kinds())]
            responses = simulate(self._traffic, list(itertools.compress(self._answers, steady)))
            all_calls_miss_frac = miss_frac(simulate(self._traffic, self._answers))
        row = replace(
            self._row,
            **stage_columns(self._stages, self._meters, responses),
            **request_columns(responses),
            all_calls_miss_frac=all_calls_miss_frac,
            num_val_targets=self._num_targets_once or None,
        )
        num_targets = sum(answer.num_targets for answer in self._answers)
        if num_targets > 0:
            row = replace(row, val_accuracy=sum(answer.num_right for answer in self._answers) / num_targets)
        if len(self._stages) == 1:
            row = replace(row, **first_call_columns(self._meters.call_times_ms(), row.package_load_s))
        return row
