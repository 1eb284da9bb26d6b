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
    """The choice with its gain and its guarantee, the budget, what was not tried, and what changes the training."""
    parts = [_choice(advice)]
    if advice.choice is not None and advice.choice.unchecked is not None:
        parts.append(f"its numbers could not be compared with eager's: {advice.choice.unchecked}")
    elif advice.is_unchecked:
        parts.append("its numbers were not compared with eager's")
    parts.append(f"{duration(advice.used_s)} of {duration(advice.budget_s)} used")
    if advice.ended:
        ended_arms = [f"{tried.label} ({short(tried.reason or '')})" for tried in advice.ended]
        parts.append(f"ended: {', '.join(ended_arms)}")
    if advice.not_tried:
        untried = [f"{left.settings} ({left.reason})" for left in advice.not_tried]
        parts.append(f"not tried: {', '.join(untried)}")
    if advice.changes_training:
        parts.append(f"changes the training: {', '.join(advice.changes_training)}")
    return clean("; ".join(parts))


def _choice(advice: Advice) -> str:
    choice = advice.choice
    if choice is None:
        return "nothing that was tried can be advised"
    if choice.is_unstable or any(tried.outcome in COMPARED for tried in advice.tried):
        doubt = _doubt(choice, advice)
        if doubt is not None:
            return f"best so far {_gain_text(choice, advice)}; {doubt}"
        return _winner_text(choice, advice)
    if len(advice.tried) > 1:
        return f"{choice.label}: nothing else that was tried can be advised"
    return f"{choice.label}: nothing else was measured"


def _doubt(choice: Tried, advice: Advice) -> str | None:
    """Why the choice is no winner; None if it is."""
    if choice.is_unstable:
        return "unstable: it jumps between two values, so it is no winner"
    undecided = "undecided"
    if advice.capped_at is not None:
        undecided = f"undecided after {advice.capped_at} jobs of each in question, the most that a setting gets"
    if advice.most_gain > MOST_TOLD:
        return f"{undecided}: too few jobs to tell what is best"
    if not advice.is_decided:
        may_be = f"may be up to {_bound(advice)} better"
        if advice.minimizes_memory:
            may_be = f"may be up to {_bound(advice)} faster"
        return f"{undecided}: {_of_stable('something tried', may_be, advice)}"
    if not advice.is_confirmed:
        return UNCONFIRMED
    return None


def _winner_text(choice: Tried, advice: Advice) -> str:
    text, is_base = _gain_text(choice, advice), choice.label == advice.base_label
    if is_base:
        text = f"stay with {text}"
    if advice.minimizes_memory:
        return f"{text}; {_memory_guarantee(advice)}"
    if advice.most_gain <= 0:
        return f"{text}; {_guarantee('better', advice)}"
    if is_base:
        text = f"no measurable gain: {text}"
    return f"{text}; {_guarantee(f'more than {_bound(advice)} better', advice)}"


def _gain_text(choice: Tried, advice: Advice) -> str:
    """The choice with its gain over the first settings; where the least memory is the goal, with the memory of both."""
    base = next((tried for tried in advice.tried if tried.label == advice.base_label), None)
    text = choice.label
    if advice.minimizes_memory:
        text = f"{choice.label}: {size(choice.peak_bytes)}"
    if choice.gain is None or base is None:
        return text
    gain = ratio_text(choice.gain)
    if advice.minimizes_memory:
        return f"{text} in place of {size(base.peak_bytes)} at {gain} the speed of {base.label}"
    return f"{text}: {gain} of {base.label}"


def _guarantee(better: str, advice: Advice) -> str:
    return f"with {100 * CONFIDENCE:.0f} % confidence {_of_stable('nothing tried', f'is {better}', advice)}"


def _memory_guarantee(advice: Advice) -> str:
    """How much faster anything else is at most, and what is known of the settings that take less memory."""
    faster = _guarantee(f"more than {_bound(advice)} faster", advice)
    if advice.choice is None or advice.choice.peak_bytes is None:
        return faster
    if not advice.smaller:
        return f"{faster}, and nothing that could be advised takes less memory"
    slower = f"{100 * advice.tolerance:g} % slower than the fastest"
    undecided = [tried.label for tried in advice.smaller if tried.may_be_equal]
    if undecided:
        return f"{faster}; undecided whether {' | '.join(undecided)}, with less memory, is more than {slower}"
    return f"{faster}, and what could be advised with less memory is more than {slower}"


def _bound(advice: Advice) -> str:
    return percent(max(advice.most_gain, 0.0))


def _of_stable(subject: str, predicate: str, advice: Advice) -> str:
    """A statement about the settings that were tried. It says nothing of the unstable ones, of which only the slower
    values were judged, and names them."""
    if not advice.unstable:
        return f"{subject} {predicate}"
    labels = [tried.label for tried in advice.unstable]
    return f"{subject} that is stable {predicate} (unstable: {' | '.join(labels)})"


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
        cost = "to compile"
        if advice.minimizes_memory:
            cost = "in memory"
        yield f"As good, and no cheaper {cost}: {labels}."
    if advice.largest_batch is not None:
        yield f"The largest batch size that was tried and fits, in mode {advice.batch_mode}: {advice.largest_batch}."
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
