"""Figures as text."""

import pytest

from trainkit.analysis.candidates import Spread
from trainkit.formatting import duration, factor, percent, time_decimals
from trainkit.report.columns import time_cells
from trainkit.report.figures import ratio_text
from trainkit.stats import Ratio


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (duration(0.64), "0.6 s"),
        (duration(119.0), "119 s"),
        (duration(120.0), "2.0 min"),
        (duration(7199.0), "120 min"),
        (duration(36_000.0), "10 h"),
        (percent(0.0123), "1.2 %"),
        (percent(1e5), "1,000+ %"),
        (ratio_text(Ratio(20.0, 1e-9, 1e9)), "20.00x [<0.001, 1,000+]"),
        (factor(0.012), "0.012"),
        (ratio_text(Ratio(1.0, 1.0, 1.0)), "1.00x"),
        (ratio_text(Ratio(0.72, 0.52, 0.9962, 0.1, measurable=True)), "0.72x [0.52, 0.996]"),
        (ratio_text(Ratio(1.01, 1.00004, 1.02, 0.001, measurable=True)), "1.01x [1.00004, 1.02]"),
        (ratio_text(Ratio(0.99, 0.98, 0.9992, 0.1, measurable=False)), "0.99x [0.98, 1.00]"),
    ],
)
def test_figures_are_said_in_few_digits(words, said):
    assert words == said


@pytest.mark.parametrize(
    ("times_ms", "texts"),
    [
        ((0.0122, 0.0118), ["0.0122", "0.0118"]),
        ((34.0, 0.0122), ["34.0000", "0.0122"]),
        ((34.0, 0.122), ["34.000", "0.122"]),
        ((34.0, 12.2), ["34.00", "12.20"]),
        ((1e-9, None), ["0.000000", "-"]),
        ((0.0, None), ["0.000", "-"]),
    ],
)
def test_times_of_microseconds_can_be_told_apart(times_ms, texts):
    spreads = [None if ms is None else Spread(ms, ms, ms) for ms in times_ms]
    assert [cell.text for cell in time_cells(spreads)] == texts


def test_a_time_without_a_value_has_the_decimals_of_a_millisecond():
    assert time_decimals([None, None], 4) == 3
