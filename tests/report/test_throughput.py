"""Samples a second over the batch size: in words, in a plot, in every report."""

from dataclasses import replace

from trainkit.analysis.comparison import compare
from trainkit.report.markdown import markdown_comparison
from trainkit.report.page import html_comparison
from trainkit.report.plots.palette import looks_of
from trainkit.report.plots.throughput import plot_throughput
from trainkit.report.terminal import print_comparison
from trainkit.report.throughput import throughput_lines, throughput_series
from trainkit.results.row import Row


def sweep(batch_sizes=(1, 4, 16), **fields) -> list[Row]:
    rows = []
    for batch_size in batch_sizes:
        for mode, step_ms in (("eager", 4.0), ("default", 2.0)):
            for repeat in range(3):
                time_ms = step_ms + repeat / 100
                row = Row(
                    f"{batch_size}/{mode}{repeat}", "ok", kind="forward", model="resnet50", data="synthetic",
                    batch_size=batch_size, compile_mode=mode, num_steps=200, num_steady_steps=190,
                    step_time_ms=time_ms, samples_per_s=1000 * batch_size / time_ms, device_name="GPU", num_devices=1,
                    overrides=[f"data.batch_size={batch_size}", f"compile.mode={mode}"],
                )  # fmt: skip
                rows.append(replace(row, **fields))
    return rows


def test_each_setting_has_a_line_over_the_batch_sizes(capsys):
    comparison = compare(sweep())
    lines = [
        "Samples a second by data.batch_size: default: "
        "497.5 (495.0-500.0) at 1, 1,990 (1,980-2,000) at 4, 7,960 (7,921-8,000) at 16",
        "Samples a second by data.batch_size: eager: "
        "249.4 (248.8-250.0) at 1, 997.5 (995.0-1,000.0) at 4, 3,990 (3,980-4,000) at 16",
    ]
    assert throughput_lines(comparison.groups) == lines
    print_comparison(comparison)
    assert "Samples a second by data.batch_size: default: " in capsys.readouterr().out
    assert "- Samples a second by data.batch\\_size: eager: " in markdown_comparison(comparison)
    assert "<h2>Throughput</h2>" in html_comparison(comparison, {}, "rates")


def test_two_batch_sizes_are_no_series():
    comparison = compare(sweep((1, 4)))
    assert throughput_lines(comparison.groups) == []
    assert "Throughput" not in html_comparison(comparison, {}, "rates")


def test_both_timings_are_series_of_their_own():
    groups = compare([*sweep(), *sweep(timing="stream", calls_per_window=20)]).groups
    conditions = [series.condition for series in throughput_series(groups)]
    assert sorted(conditions) == ["", "timing=stream"]
    for series in throughput_series(groups):
        plot = plot_throughput(series, looks_of(groups), "rates")
        assert [label for label, _ in plot.keys] == ["default", "eager"]
