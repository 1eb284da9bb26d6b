"""The plot of a race: the intervals of its arms, closing from round to round."""

from collections.abc import Iterator, Sequence

from matplotlib import rc_context

from trainkit.analysis.advice import Round, Tried
from trainkit.report.advice import bounds_text
from trainkit.report.plots.axes import BAR, labelled_rows, set_ratio_scale
from trainkit.report.plots.palette import HUES, INK, MUTED, STYLE
from trainkit.report.plots.svg import Plot, figure_svg, plot_description

INTERVALS_NOTE = (
    "How many times as good as the leader each setting is, higher is better. Each setting has an interval for each "
    "round, the first on top. A cross ends the interval that puts a setting out."
)
FARTHEST = 4.0  # times as good as the leader, and as bad
NEAREST = 1.1
ROUND = 2.5  # pixels, at least, from the line of a round to the next


@rc_context(STYLE)
def plot_race(rounds: Sequence[Round], tried: Sequence[Tried], name: str) -> Plot | None:
    """The intervals of the arms over the leader, round by round, in the order of `tried`; None without any."""
    labels = [arm.label for arm in tried if any(_is_known(shown, arm.label) for shown in rounds)]
    if not labels:
        return None
    ends = [end for label in labels for _, interval, _ in _intervals(rounds, label) for end in interval]
    low, high = max(min(ends), 1 / FARTHEST), min(max(ends), FARTHEST)
    low, high = min(low, 1 / NEAREST), max(high, NEAREST)
    entries = [(label, _last_text(rounds, label)) for label in labels]
    bar = max(BAR, ROUND * len(rounds))
    rows = labelled_rows(entries, bar=bar)
    set_ratio_scale(rows.axes, "x", low, high)
    rows.axes.axvline(1, color=MUTED, linewidth=1)
    step = bar / len(rounds)
    for label, y in zip(labels, rows.ys, strict=True):
        for number, interval, is_out in _intervals(rounds, label):
            height = y - bar / 2 + (number + 0.5) * step
            shown = [min(max(end, low), high) for end in interval]
            if label == rounds[number].leader:
                rows.axes.plot([1], [height], ".", color=INK, markersize=5)
            else:
                rows.axes.plot(shown, [height, height], "-", color=MUTED if is_out else HUES[0], linewidth=1.6)
            if is_out:
                rows.axes.plot(shown[1:], [height], "x", color=INK, markersize=6)
                break
    rows.axes.set_xlabel("times as good as the leader")
    title = "Intervals round by round"
    return Plot(title, figure_svg(rows.figure, name, plot_description(title, entries)), INTERVALS_NOTE)


def _intervals(rounds: Sequence[Round], label: str) -> Iterator[tuple[int, tuple[float, float], bool]]:
    """The number of each round that knows an interval of an arm, the interval, and whether it puts the arm out."""
    for number, shown in enumerate(rounds):
        if _is_known(shown, label):
            yield number, shown.intervals[label], label in shown.eliminated


def _is_known(shown: Round, label: str) -> bool:
    interval = shown.intervals.get(label)
    return interval is not None and interval[0] > 0


def _last_text(rounds: Sequence[Round], label: str) -> str:
    """The last interval of an arm, as far as it was in the race."""
    if label in rounds[-1].excluded:
        return "excluded"
    text = ""
    for number, (low, high), is_out in _intervals(rounds, label):
        if label == rounds[number].leader:
            text = "leads"
            continue
        text = bounds_text((low, high))
        if is_out:
            break
    return text
