"""The columns of a row follow from its epochs."""

import pytest

from tests.metrics.conftest import compile_parts, make_cost, make_step, summary_of
from trainkit.metrics.memory import Memory
from trainkit.results.columns import columns
from trainkit.results.row import COMPILE_KINDS, Row


def test_every_value_is_a_column():
    assert summary_of([make_cost(make_step(1.0))]).keys() <= columns(Row).keys()


def test_epochs_compare_between_modes_without_the_first_and_without_what_broke_off():
    first, second, third = (make_cost(make_step(1.0), train_time_s=seconds) for seconds in (9.0, 2.0, 4.0))
    broken_off = make_cost(make_step(1.0), train_time_s=0.1, complete=False)
    assert summary_of([first, second, third, broken_off])["epoch_train_time_s"] == 3.0
    assert summary_of([first])["epoch_train_time_s"] == 9.0


def test_an_epoch_before_compiling_is_no_epoch_of_the_compiled_network():
    eager, compiling, compiled = make_step(8.0, eager=True), make_step(900.0, compiled=True), make_step(2.0)
    epochs = [
        make_cost(eager, eager, train_time_s=9.0),
        make_cost(eager, eager, train_time_s=8.0),
        make_cost(compiling, compiled, train_time_s=90.0),
        make_cost(compiled, compiled, train_time_s=2.0),
    ]
    assert summary_of(epochs)["epoch_train_time_s"] == 2.0
    assert summary_of(epochs[:2])["epoch_train_time_s"] == 8.0


def test_the_step_time_of_two_shapes_does_not_turn_on_which_of_them_compiled():
    def trained(*compiling: int) -> dict:
        sizes = [32] * 20 + [64] * 20
        steps = []
        for number, size in enumerate(sizes):
            steps.append(make_step(1.0 if size == 32 else 2.0, compiled=number in compiling, work=size))
        return summary_of([make_cost(*steps), make_cost(*steps)])

    once, twice = trained(0), trained(0, 20)
    assert once["step_time_ms_p50"] != twice["step_time_ms_p50"]  # the median jumps
    assert once["step_time_ms"] == twice["step_time_ms"] == 1.5


def test_a_function_left_to_python_runs_uncompiled_in_every_step():
    epochs = [make_cost(*[make_step(1.0)] * 5)]
    assert summary_of(epochs, skips_function=True)["num_eager_steps"] == 5
    assert summary_of(epochs, skips_function=True, reports_eager=False)["num_eager_steps"] is None


def test_autotuning_is_a_part_of_its_own():
    epochs = [make_cost(make_step(1.0), compile_s=compile_parts(10.0) | {"recompile": 2.0})]
    summary = summary_of(epochs, autotune_s={"forward": 7.0, "recompile": 5.0})
    got = {kind: summary[f"compile_{kind}_s"] for kind in COMPILE_KINDS}
    assert got == {"forward": 3.0, "backward": 0.0, "autotune": 9.0, "cudagraph": 0.0, "recompile": 0.0}
    assert summary["compile_time_s"] == 12.0
    assert summary_of(epochs, autotune_s={"autotune": 1.5})["compile_time_s"] == 13.5  # at a kernel's first launch


@pytest.mark.parametrize(
    ("steady_peak", "compile_peak", "expected"),
    [(Memory(1, 2, 3), Memory(4, 5, 6), (1, 4)), (None, Memory(4, 5, 6), (4, 4)), (Memory(1, 2, 3), None, (1, None))],
)
def test_peaks_of_compiling_steps_stand_in_if_all_steps_compiled(steady_peak, compile_peak, expected):
    summary = summary_of([make_cost(make_step(1.0), steady_peak=steady_peak, compile_peak=compile_peak)])
    assert (summary["peak_allocated_bytes"], summary["compile_peak_allocated_bytes"]) == expected


def test_energy_per_step_is_the_median_of_epochs_without_a_compile():
    steps, compiling = [make_step(1.0)] * 5, [make_step(1.0, compiled=True)] * 5
    energies_j = {"first": 900.0, "compiled": 500.0, "unknown": None, "second": 40.0, "third": 60.0}
    epochs = []
    for name, energy_j in energies_j.items():
        epochs.append(make_cost(*(compiling if name == "compiled" else steps), energy_j=energy_j))
    assert summary_of(epochs)["energy_per_step_j"] == 10.0
    assert summary_of([make_cost(*steps)])["energy_per_step_j"] is None
