"""A comparison as comma-separated values."""

import csv
from dataclasses import replace
from io import StringIO

import pytest

from tests.sweeps import crossing, five_modes, gpu_sweep, hostile_sweep
from trainkit.analysis.comparison import Comparison, compare
from trainkit.report.csv_file import csv_comparison


def read(comparison: Comparison) -> list[dict[str, str]]:
    return list(csv.DictReader(StringIO(csv_comparison(comparison)), strict=True))


def test_a_reader_can_plot_the_settings_of_a_sweep():
    lines = read(compare(crossing()))
    assert len(lines) == 9
    static = {}
    for line in lines:
        if (line["compile.mode"], line["compile.dynamic"]) == ("default", "false"):
            static[int(line["model.num_ops"])] = float(line["speedup"])
            assert float(line["speedup_low"]) < float(line["speedup"]) < float(line["speedup_high"])
    assert static == pytest.approx({1: 0.6, 10: 1.5, 30: 3.5})
    assert {line["compile.dynamic"] for line in lines if line["compile.mode"] == "eager"} == {""}


def test_each_setting_of_the_comparison_has_a_line_with_its_figures():
    comparison = compare(gpu_sweep())
    lines = {line["setting"]: line for line in read(comparison) if not line["dropped"]}
    (group,) = comparison.groups
    assert list(lines) == [candidate.label for candidate in group.candidates]
    for candidate in group.candidates:
        line = lines[candidate.label]
        assert int(line["num_repeats"]) == candidate.num_repeats
        for name, figure in (
            ("step_time_ms", candidate.step_time_ms.median),
            ("step_time_ms_low", candidate.step_time_ms.low),
            ("step_time_ms_high", candidate.step_time_ms.high),
            ("compile_time_s", candidate.compile_time_s.median),
            ("peak_reserved_bytes", candidate.peak_reserved_bytes),
            ("val_accuracy", candidate.metric.spread.median),
        ):
            assert float(line[name]) == pytest.approx(figure, rel=1e-8)
        assert line["recommended"] == str(candidate is group.recommended).lower()
        assert line["torch_version"] == "2.11.0"


def test_unknown_values_are_empty_and_columns_without_any_are_left_out():
    lines = read(compare(gpu_sweep(1)))
    assert {line["speedup_low"] for line in lines} == {"1", ""}  # eager over itself, and single runs
    assert "energy_per_step_j" not in lines[0]
    measured = [replace(row, energy_per_step_j=2.5) for row in gpu_sweep(1)]
    assert "2.5" in {line["energy_per_step_j"] for line in read(compare(measured))}


def test_a_dropped_setting_has_its_reason_and_no_figures():
    (line,) = [line for line in read(compare(five_modes())) if line["setting"] == "reduce-overhead"]
    assert line["dropped"] == "requested reduce-overhead, effective default: CUDA graphs need a CUDA device"
    assert (line["num_repeats"], line["step_time_ms"], line["speedup"]) == ("2", "", "")


def test_the_times_of_a_compile_are_of_the_coldest_cache():
    found = {0: "cold", 1: "warm", 2: "warm"}
    rows = []
    for row in gpu_sweep():
        if row.compile_mode == "default":
            row = replace(row, cache_found=found[row.repeat], compile_time_s=30.0 if row.repeat == 0 else 3.0)
        rows.append(row)
    (line,) = [line for line in read(compare(rows)) if line["setting"] == "default"]
    assert (line["compile_time_s"], line["warm_compile_time_s"]) == ("30", "3")


def test_words_of_users_stay_in_their_cells():
    comparison = compare(hostile_sweep())
    lines = read(comparison)
    num_candidates = sum(len(group.candidates) for group in comparison.groups)
    assert len(lines) == num_candidates + len(comparison.dropped)
    assert all(None not in line and None not in line.values() for line in lines)
