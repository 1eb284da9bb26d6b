"""Ratios within machines: two machines of one kind, and two cards of a machine, can differ by more than two settings
do."""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence

import numpy as np

from trainkit.analysis.dropping import step_time_ms, step_times_ms
from trainkit.results.row import Row
from trainkit.stats import Ratio, ratio, stratified_ratio

Figure = Callable[[Row], float | None]
Place = Callable[[Row], Hashable]  # where a run was measured
MachineFactors = Mapping[str | None, float]  # how many times as long a step takes as on the average machine


def machine_of(row: Row) -> Hashable:
    return row.machine_id


def card_of(row: Row) -> Hashable:
    return row.machine_id, row.device_index


def step_ratio(rows: Sequence[Row], other_rows: Sequence[Row], place: Place = machine_of) -> Ratio:
    """The step time of a setting over that of another, within machines or cards."""
    return ratio_within_machines(rows, other_rows, step_time_ms, place)


def ratio_within_machines(
    rows: Sequence[Row], other_rows: Sequence[Row], figure: Figure, place: Place = machine_of
) -> Ratio:
    """The figure of a setting over that of another, machine by machine: the machines have no part in it. With
    `card_of` it is card by card.

    Rows without the figure do not count. If no machine has both settings, it is the ratio of all rows.
    """
    rows = [row for row in rows if figure(row) is not None]
    other_rows = [row for row in other_rows if figure(row) is not None]
    rows, other_rows = of_common_machines(rows, other_rows, place)
    machines = machines_of(rows, place)
    if machines_of(other_rows, place) != machines:
        return ratio(_figures(rows, figure), _figures(other_rows, figure))
    strata = []
    for machine in sorted(machines, key=str):
        figures = _figures(_of_machines(rows, {machine}, place), figure)
        other_figures = _figures(_of_machines(other_rows, {machine}, place), figure)
        strata.append((figures, other_figures))
    return stratified_ratio(strata)


def machine_factors(settings: Iterable[Sequence[Row]]) -> MachineFactors:
    """How many times as long a step takes on each machine as on the average one, by settings that several machines
    have. A machine that shares no setting with another has the factor 1.

    A fit by least squares: the logarithm of a step time is that of its setting and that of its machine. Each setting
    is the repeats of one; all have a step time.
    """
    settings = list(settings)
    machines: set[str | None] = set()
    for rows in settings:
        machines |= {row.machine_id for row in rows}
    if len(machines) < 2:
        return dict.fromkeys(machines, 1.0)
    names = sorted(machines, key=str)
    designs, log_times = [], []
    for rows in settings:
        is_measured_on = np.array([[row.machine_id == name for name in names] for row in rows], dtype=float)
        log_time = np.log(step_times_ms(rows))
        # Without the mean of the setting, its own part is gone.
        designs.append(is_measured_on - is_measured_on.mean(axis=0))
        log_times.append(log_time - log_time.mean())
    # Of all solutions the smallest: its mean is 0 over the machines that settings connect.
    effects, *_ = np.linalg.lstsq(np.concatenate(designs), np.concatenate(log_times))
    return dict(zip(names, np.exp(effects).tolist(), strict=True))


def comparable_times_ms(rows: Iterable[Row], factors: MachineFactors) -> list[float]:
    """The step times as on the average machine."""
    times_ms = []
    for row in rows:
        time_ms = step_time_ms(row)
        if time_ms is not None:
            times_ms.append(time_ms / factors[row.machine_id])
    return times_ms


def of_common_machines(
    rows: Sequence[Row], other_rows: Sequence[Row], place: Place = machine_of
) -> tuple[list[Row], list[Row]]:
    """The rows of two settings from the machines that both were measured on; all rows if there is none.

    Rows that do not tell their machine count as rows of one machine.
    """
    common = machines_of(rows, place) & machines_of(other_rows, place)
    if not common:
        return list(rows), list(other_rows)
    return _of_machines(rows, common, place), _of_machines(other_rows, common, place)


def machines_of(rows: Iterable[Row], place: Place = machine_of) -> set[Hashable]:
    return {place(row) for row in rows}


def _of_machines(rows: Iterable[Row], machines: set[Hashable], place: Place) -> list[Row]:
    return [row for row in rows if place(row) in machines]


def _figures(rows: Iterable[Row], figure: Figure) -> list[float]:
    figures = []
    for row in rows:
        value = figure(row)
        if value is not None:
            figures.append(value)
    return figures
