"""The plot of the time to reach a step, compiling included, and of the step at which compiling pays off."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib import rc_context
from matplotlib.axes import Axes

from trainkit.analysis.candidates import Candidate
from trainkit.analysis.comparison import Group
from trainkit.formatting import fixed
from trainkit.report.figures import median_of
from trainkit.report.labels import step_noun
from trainkit.report.plots.axes import curve_axes
from trainkit.report.plots.palette import MUTED, STYLE, Look, Looks
from trainkit.report.plots.svg import Plot, figure_svg, plot_description
from trainkit.report.verdicts import break_even_steps

MINUTES_FROM_S = 300  # longer axes are in minutes
FAR_CROSSING = 8  # times the first break-even: crossings beyond it are left to the text


@dataclass(frozen=True)
class _Training:
    """A setting and its compile time, which is 0 for eager."""

    candidate: Candidate
    compile_time_s: float

    def time_s(self, num_steps: int) -> float:
        return self.compile_time_s + num_steps * self.candidate.step_time_ms.median / 1e3

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
    last_step = _last_step(group)
    highest_s = _highest_time_s(trainings, last_step)
    unit, unit_s = "seconds", 1.0
    if highest_s >= MINUTES_FROM_S:
        unit, unit_s = "minutes", 60.0
    step = step_noun(group)
    x_title = "calls" if step == "call" else "training steps"
    figure, axes = curve_axes(x_title, unit, num_ticks=5)
    keys, above = [], []
    for training in trainings:
        candidate = training.candidate
        _draw_training(axes, training, looks[candidate.label], last_step, unit_s)
        pays = candidate.break_even
        pays_text = "" if pays is None else f"pays off after {break_even_steps(pays, step)}"
        keys.append((candidate.label, pays_text))
        if training.compile_time_s > highest_s:
            above.append(candidate.label)
    note = "Compile time included."
    if any(pays for _, pays in keys):
        note += " From its dot on a setting is ahead of eager."
    planned = group.num_planned_steps
    if planned is not None and planned <= last_step:
        axes.axvline(planned, color=MUTED, linewidth=1, linestyle=(0, (3, 3)))
        note += f" Dashed: the {fixed(planned, 0)} {step}s planned."
    axes.set_xlim(0, last_step)
    axes.set_ylim(0, highest_s / unit_s)
    if above:
        note += f" Above the plot: {', '.join(above)}."
    title = f"Time to reach a {step}"
    return Plot(title, figure_svg(figure, name, plot_description(title, keys)), note, tuple(keys))


def _draw_training(axes: Axes, training: _Training, look: Look, last_step: int, unit_s: float) -> None:
    """Draw a line, and a dot at the step at which it pays off."""
    times = [training.compile_time_s / unit_s, training.time_s(last_step) / unit_s]
    axes.plot([0, last_step], times, color=look.color, linestyle=look.line, linewidth=1.8)
    pays = training.candidate.break_even
    if pays is not None and pays.num_steps <= last_step:
        crossing = training.time_s(pays.num_steps) / unit_s
        axes.plot([pays.num_steps], [crossing], "o", color=look.color, markersize=6.5, zorder=3)


def _trainings(group: Group) -> list[_Training]:
    """The settings whose compile time is known."""
    trainings = []
    for candidate in group.candidates:
        compile_time_s = 0.0 if candidate.is_eager else median_of(candidate.compile_time_s)
        if compile_time_s is not None:
            trainings.append(_Training(candidate, compile_time_s))
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


def _last_step(group: Group) -> int:
    """A number of steps at which the crossings can be told apart; the text names a crossing far behind the first."""
    planned = group.num_planned_steps or 0
    crossings, longest_run = [], 1
    for candidate in group.candidates:
        if candidate.break_even is not None:
            crossings.append(candidate.break_even.num_steps)
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
