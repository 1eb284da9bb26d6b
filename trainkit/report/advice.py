"""The advice of a race in sentences and tables: the terminal, and the page."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from statistics import median

from rich.console import Console
from rich.table import Table
from rich.text import Text

from trainkit.analysis.advice import Advice, Tried
from trainkit.formatting import clean, duration, factor, fixed, percent, seconds, short, size
from trainkit.report.figures import distinct_from_1, factor_text, ratio_text
from trainkit.report.terminal import terminal
from trainkit.stats import CONFIDENCE

HEADINGS = ("settings", "samples/s", "times as good", "vs leader", "compile", "peak memory", "jobs", "outcome")
MOST_TOLD = 1.0  # relative: a bound above it tells nothing
UNCONFIRMED = "unconfirmed: not all jobs that a winner gets in the end were run"
COMPARED = ("equal", "no_better", "open", "slower")  # outcomes of arms beside the chosen one
OUTCOME_TEXTS = {
    "chosen": "chosen", "leading": "best so far", "equal": "as good", "no_better": "as good or worse",
    "open": "undecided", "slower": "worse", "excluded": "",
}  # fmt: skip


def advice_sentence(advice: Advice) -> str:
    """The choice with its gain and its guarantee, the budget, and what was not tried."""
    parts = [_choice(advice)]
    if advice.choice is not None and advice.choice.unchecked is not None:
        parts.append(f"its numbers could not be compared with eager's: {advice.choice.unchecked}")
    parts.append(f"{duration(advice.used_s)} of {duration(advice.budget_s)} used")
    if advice.not_tried:
        untried = [f"{left.settings} ({left.reason})" for left in advice.not_tried]
        parts.append(f"not tried: {', '.join(untried)}")
    return clean("; ".join(parts))


def _choice(advice: Advice) -> str:
    choice = advice.choice
    if choice is None:
        return "nothing that was tried can be advised"
    if not any(tried.outcome in COMPARED for tried in advice.tried):
        return f"{choice.label}: nothing else was measured"
    bound = percent(max(advice.most_gain, 0.0))
    guarantee = _guarantee(f"more than {bound} better")
    undecided = "undecided"
    if advice.capped_at is not None:
        undecided = f"undecided after {advice.capped_at} jobs of each in question, the most that a setting gets"
    if choice.is_unstable:
        return f"best so far {_gain_text(choice, advice)}; unstable: it jumps between two values, so it is no winner"
    if advice.most_gain > MOST_TOLD:
        return f"best so far {_gain_text(choice, advice)}; {undecided}: too few jobs to tell what is best"
    if not advice.is_decided:
        return f"best so far {_gain_text(choice, advice)}; {undecided}: something tried may be up to {bound} better"
    if not advice.is_confirmed:
        return f"best so far {_gain_text(choice, advice)}; {UNCONFIRMED}"
    if choice.label == advice.base_label and advice.most_gain <= 0:
        return f"stay with {choice.label}: {_guarantee('better')}"
    if choice.label == advice.base_label:
        return f"no measurable gain: stay with {choice.label}; {guarantee}"
    return f"{_gain_text(choice, advice)}; {guarantee}"


def _gain_text(choice: Tried, advice: Advice) -> str:
    if choice.gain is None:
        return choice.label
    return f"{choice.label}: {ratio_text(choice.gain)} of {advice.base_label}"


def _guarantee(better: str) -> str:
    return f"with {100 * CONFIDENCE:.0f} % confidence nothing tried is {better}"


def tried_cells(tried: Tried) -> list[str]:
    """The cells of an arm under HEADINGS."""
    speeds = [job.samples_per_s for job in tried.jobs if job.samples_per_s is not None]
    return [
        tried.label,
        fixed(median(speeds), 0) if speeds else "-",
        factor_text(tried.gain) if tried.gain is not None else "-",
        _interval_text(tried),
        seconds(tried.compile_s),
        size(tried.peak_bytes),
        str(len(tried.jobs)),
        _outcome_text(tried),
    ]


def _interval_text(tried: Tried) -> str:
    if tried.is_leader:
        return "leads"
    if tried.interval is None or tried.interval[0] == 0:  # nothing tells how far the figures scatter
        return "-"
    return bounds_text(tried.interval)


def _outcome_text(tried: Tried) -> str:
    texts = [OUTCOME_TEXTS[tried.outcome] or short(tried.reason or "")]
    if tried.unchecked is not None:
        texts.append("numbers not compared with eager's")
    if tried.is_unstable:
        texts.append("unstable: judged by the slower of two values, and no winner")
    num_breaks = max([job.num_graph_breaks or 0 for job in tried.jobs], default=0)
    if num_breaks:
        texts.append(f"graph breaks: {num_breaks}")
    return "; ".join(texts)


def advice_notes(advice: Advice) -> Iterator[str]:
    """The goal, how to read the table, the ties, and the effect of each value."""
    yield f"Best is the least of {advice.goal}."
    if any(tried.outcome in COMPARED for tried in advice.tried):
        yield (
            f'The column "times as good" compares with {advice.base_label}. The column "vs leader" has the intervals '
            "that decide the outcome, which hold for all settings together: below 1 is worse, at most "
            f"{100 * advice.tolerance:g} % below is as good."
        )
    if advice.equals:
        labels = " | ".join(tried.label for tried in advice.equals)
        yield f"As good, and costlier to compile or in memory: {labels}."
    if advice.largest_batch is not None:
        yield f"The largest batch size that was tried and fits: {advice.largest_batch}."
    if advice.effects:
        yield f"One value at a time, each with a {100 * CONFIDENCE:.0f} % interval for that comparison alone:"
    for effect in advice.effects:
        yield f"{effect.value} over {effect.over}: {ratio_text(effect.gain)}."


def print_advice(advice: Advice, console: Console | None = None) -> None:
    """Print the table of the arms, best first, the notes, and the sentence last."""
    console = console or terminal()
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for heading in HEADINGS:
        if heading in ("settings", "outcome"):
            table.add_column(heading, overflow="fold")
        else:
            table.add_column(heading, justify="right")
    for tried in best_first(advice.tried):
        table.add_row(*[Text(clean(cell)) for cell in tried_cells(tried)])
    console.print(table)
    for note in advice_notes(advice):
        console.print(Text(clean(note)), soft_wrap=True)
    console.print(Text(advice_sentence(advice), style="bold"), soft_wrap=True)


def best_first(tried: Iterable[Tried]) -> list[Tried]:
    """The arms by their outcome, then by their gain."""
    order = list(OUTCOME_TEXTS)
    return sorted(tried, key=lambda arm: (order.index(arm.outcome), -(arm.gain.value if arm.gain else 0.0)))


def bounds_text(interval: tuple[float, float]) -> str:
    """An interval of ratios, which shows on which side of 1 it lies: `0.85 to 0.997`."""
    low, high = interval
    end = distinct_from_1 if low > 1 or high < 1 else factor
    return f"{end(low)} to {end(high)}"


def write_advice(folder: Path, advice: Advice, title: str) -> Path:
    """Write the page of a race, `race.html`. Returns its path."""
    from trainkit.report.race_page import html_advice  # imports matplotlib, which takes a second

    path = folder / "race.html"
    path.write_text(html_advice(advice, title), encoding="utf-8")
    return path
