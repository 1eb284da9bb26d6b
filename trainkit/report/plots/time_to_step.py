"""The plot of the time to reach a step, compiling included, and of the step at which compiling pays off."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes

from trainkit.analysis.candidates import Candidate
from trainkit.analysis.comparison import Group
from trainkit.formatting import fixed
from trainkit.report.figures import median_of
from trainkit.report.labels import step_noun
from trainkit.report.plots.axes import curve_axes, set_log_scale
from trainkit.report.plots.palette import MUTED, STYLE, Look, Looks
from trainkit.report.plots.svg import Plot, figure_svg, plot_description
from trainkit.report.verdicts import break_even_steps

MINUTES_FROM_S = 300  # longer axes are in minutes
FAR_CROSSING = 8  # times the first break-even: with a crossing beyond it both axes are logarithmic
NUM_POINTS = 40  # of a curve on logarithmic axes


@dataclass(frozen=True)
class _Training:
    """A setting and the time to export and compile it, which is 0 for eager."""

    candidate: Candidate
    setup_time_s: float

    def time_s(self, num_steps: int) -> float:
        return self.setup_time_s + num_steps * self.candidate.comparable_step_ms.median / 1e3

    def pays_off_by(self, num_steps: int) -> bool:
        pays = self.candidate.break_even
        return pays is not None and pays.num_steps <= num_steps


@rc_context(STYLE)
def plot_time_to_step(group: Group, looks: Looks, name: str) -> Plot | None:
    """Compile time + steps against steps; None without compile times.

    Compiling pays off at the step at which a curve crosses eager's.
    """
    trainings = _trainings(group)
    if not trainings:
        return None
    first_step, last_step = 0, _last_step(group)
    highest_s = _highest_time_s(trainings, last_step)
    is_logarithmic = _has_far_crossing(group) or any(training.setup_time_s > highest_s for training in trainings)
    if is_logarithmic:
        first_step, last_step = _logarithmic_steps(group)
        highest_s = max(training.time_s(last_step) for training in trainings)
    unit, unit_s = "seconds", 1.0
    if highest_s >= MINUTES_FROM_S:
        unit, unit_s = "minutes", 60.0
    step = step_noun(group)
    x_title = "calls" if step == "call" else "training steps"
    figure, axes = curve_axes(x_title, unit, num_ticks=5)
    keys = []
    for training in trainings:
        candidate = training.candidate
        _draw_training(axes, training, looks[candidate.label], (first_step, last_step), unit_s)
        pays = candidate.break_even
        pays_text = "" if pays is None else f"pays off after {break_even_steps(pays, step)}"
        keys.append((candidate.label, pays_text))
    note = "Compile time included."
    if any(pays for _, pays in keys):
        note += " From its dot on a setting is ahead of eager."
    planned = group.num_planned_steps
    if planned is not None and planned <= last_step:
        axes.axvline(planned, color=MUTED, linewidth=1, linestyle=(0, (3, 3)))
        note += f" Dashed: the {fixed(planned, 0)} {step}s planned."
    axes.set_xlim(first_step, last_step)
    axes.set_ylim(0, highest_s / unit_s)
    if is_logarithmic:
        lowest_s = min(training.time_s(first_step) for training in trainings)
        set_log_scale(axes, (first_step, last_step), (lowest_s / unit_s, 1.2 * highest_s / unit_s))
        note += " Both axes are logarithmic, for a setting is far off."
    title = f"Time to reach a {step}"
    return Plot(title, figure_svg(figure, name, plot_description(title, keys)), note, tuple(keys))


def _draw_training(axes: Axes, training: _Training, look: Look, ends: tuple[int, int], unit_s: float) -> None:
    """Draw the time from the first step to the last, and a dot at the step at which it pays off."""
    first_step, last_step = ends
    steps = list(ends)
    if first_step > 0:
        steps = [round(step) for step in np.geomspace(first_step, last_step, NUM_POINTS)]
    times = [training.time_s(step) / unit_s for step in steps]
    axes.plot(steps, times, color=look.color, linestyle=look.line, linewidth=1.8)
    pays = training.candidate.break_even
    if pays is not None and first_step <= pays.num_steps <= last_step:
        crossing = training.time_s(pays.num_steps) / unit_s
        axes.plot([pays.num_steps], [crossing], "o", color=look.color, markersize=6.5, zorder=3)


def _trainings(group: Group) -> list[_Training]:
    """The settings whose compile time is known."""
    trainings = []
    for candidate in group.candidates:
        setup_time_s = 0.0 if candidate.is_eager else median_of(candidate.setup_time_s)
        if setup_time_s is not None:
            trainings.append(_Training(candidate, setup_time_s))
    return trainings


def _highest_time_s(trainings: Sequence[_Training], last_step: int) -> float:
    """The upper end of the axis. A setting that pays off after the last step, or never, may run out of the axes."""
    times_s, near_times_s = [], []
    for training in trainings:
        time_s = training.time_s(last_step)
        times_s.append(time_s)
        if training.candidate.is_eager or training.pays_off_by(last_step):
            near_times_s.append(time_s)
    return 1.4 * max(near_times_s or times_s)


def _has_far_crossing(group: Group) -> bool:
    crossings = _crossings(group)
    return bool(crossings) and max(crossings) > FAR_CROSSING * max(min(crossings), 1)


def _crossings(group: Group) -> list[int]:
    """The step at which each setting pays off."""
    crossings = []
    for candidate in group.candidates:
        if candidate.break_even is not None:
            crossings.append(candidate.break_even.num_steps)
    return crossings


def _logarithmic_steps(group: Group) -> tuple[int, int]:
    """The first and the last step of an axis that has all crossings, or the longest run."""
    crossings = _crossings(group) or [_last_step(group)]
    return max(min(crossings) // 10, 1), 2 * max(*crossings, 10)


def _last_step(group: Group) -> int:
    """A number of steps at which the crossings can be told apart; the text names a crossing far behind the first."""
    planned = group.num_planned_steps or 0
    crossings, longest_run = _crossings(group), 1
    for candidate in group.candidates:
        for row in candidate.rows:
            longest_run = max(longest_run, row.num_steps)
    if not crossings:
        return max(longest_run, planned)
    furthest = FAR_CROSSING * max(min(crossings), 1)
    last_crossing = 1
    for step in (*crossings, planned):
        if step <= furthest:
            last_crossing = max(last_crossing, step)
    return math.ceil(1.25 * last_crossing)
