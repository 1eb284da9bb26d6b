"""Calls are measured each by itself, apart by network and by shape of the inputs."""

import time

import torch

from trainkit.metrics.calls import CallMeters
from trainkit.metrics.summary import CompilerReport
from trainkit.results.columns import columns
from trainkit.results.row import Row

REPORT = CompilerReport(autotune_s={}, reports_eager=True)


def measure(meters: CallMeters, shapes: list[tuple[int, ...]], network: int = 0) -> None:
    for shape in shapes:
        meters.call(lambda: time.sleep(0.002), network, shape)


def test_a_call_is_as_long_as_what_it_calls_and_shapes_stand_apart():
    meters = CallMeters()
    meters.begin(torch.device("cpu"))
    measure(meters, [(1, 3)] * 10 + [(2, 3)] * 10)
    meters.end(complete=True)
    summary = meters.summary(REPORT)
    assert summary.keys() <= columns(Row).keys()
    assert summary["step_time_ms_p50"] >= 2.0
    assert summary["epoch_train_time_s"] is summary["data_wait_frac"] is None
    assert [latency.shape for latency in summary["latency_by_shape"]] == [[1, 3], [2, 3]]
    assert sum(latency.num_calls for latency in summary["latency_by_shape"]) == summary["num_steady_steps"]


def test_calls_that_measure_networks_are_warm_up():
    meters = CallMeters(measured_first=True)
    meters.begin(torch.device("cpu"))
    measure(meters, [(1,)] * 3, network=0)
    measure(meters, [(1,)] * 3, network=1)
    meters.end(complete=True)
    meters.begin(torch.device("cpu"))
    measure(meters, [(1,)] * 2, network=1)
    meters.end(complete=True)
    summary = meters.summary(REPORT)
    assert (summary["num_warmup_steps"], summary["num_steady_steps"]) == (6, 2)
    assert summary["latency_by_shape"] == []
    assert meters.latency(network=0)["num_calls"] == 0
    assert meters.latency(network=1)["num_calls"] == 2


def test_a_window_has_the_time_of_one_of_its_calls_and_does_not_count_if_something_compiled():
    meters = CallMeters()
    meters.begin(torch.device("cpu"))
    for number in range(9):

        def issue(compiles: bool = number == 0) -> None:
            time.sleep(0.02)
            if compiles:
                meters.epoch_meter.on_compile_start("forward")
                meters.epoch_meter.on_compile_end("forward")

        meters.window(issue, [(1, 3), (3, 3)] * 5 if number < 8 else [(1, 3)])
    meters.end(complete=True)
    summary = meters.summary(REPORT)
    assert (summary["num_steps"], summary["num_compiling_steps"]) == (9, 1)
    assert summary["num_steady_steps"] + summary["num_warmup_steps"] == 7  # without the short last one
    assert summary["step_time_ms_p50"] >= 2.0
    assert summary["samples_per_s"] <= 20 / 0.02
    assert summary["latency_by_shape"] is None


def test_ending_twice_keeps_one_epoch():
    meters = CallMeters()
    meters.begin(torch.device("cpu"))
    meters.end(complete=False)
    meters.end(complete=False)
    assert len(meters.epochs) == 1
