"""A comparison, the work of the compiler and a diagnosis as Markdown."""

import re
from collections.abc import Iterable, Sequence

from trainkit.analysis.comparison import Comparison, Group
from trainkit.analysis.dropping import why_dropped
from trainkit.analysis.grouping import as_typed
from trainkit.analysis.scaling import Scaling
from trainkit.diagnosis.findings import Diagnosis
from trainkit.diagnosis.remedies.recompiles import guard_message
from trainkit.formatting import clean, fixed, short
from trainkit.report.columns import TableColumn, comparison_columns
from trainkit.report.compiler_facts import graph_sizes, recompile_causes
from trainkit.report.diagnosis_labels import stage_table
from trainkit.report.labels import Heading, dropped_title, headings, machine_label, run_count
from trainkit.report.notes import comparison_notes
from trainkit.report.recommendations import recommendation
from trainkit.report.scaling import scaling_columns, scaling_notes, scaling_sentences, scaling_title
from trainkit.report.throughput import throughput_lines
from trainkit.report.verdicts import verdicts
from trainkit.results.row import Row

VARIANT = re.compile(r"^\d+/\d+: ")  # of a function, whose guard failed: torch counts each again

COMPILER_COLUMNS = {
    "graphs": "num_graphs",
    "breaks": "num_graph_breaks",
    "recompiles": "num_recompiles",
    "steps uncompiled": "num_eager_steps",
    "steps": "num_steps",
}


def escape(text: str) -> str:
    """Text of a user or a log as one line without markup."""
    return re.sub(r"([\\`*_<>|\[\]])", r"\\\1", clean(text))


def markdown_comparison(comparison: Comparison, of_study: bool = False) -> str:
    """Scalings, a table and a list of verdicts for each group, notes, and the rows that were dropped.

    A study compares what it planned: there a group without an eager run, or with eager ones alone, has no speed-ups and
    no advice.
    """
    groups = comparison.groups
    blocks = []
    if not groups:
        blocks.append("Nothing to compare: no run was measured.")
    for scaling in comparison.scalings:
        blocks += _scaling_blocks(scaling)
    notes = comparison_notes(groups)
    for group, heading, own_notes in zip(groups, headings(groups), notes.by_group, strict=True):
        is_compared = bool(group.eager and group.compiled) or not of_study
        blocks.append(_candidates_table(group, heading, with_speedups=is_compared))
        if is_compared:
            blocks.append(_verdicts(group))
        blocks += map(escape, own_notes)
    throughputs = throughput_lines(groups)
    if throughputs:
        blocks.append("\n".join(f"- {escape(line)}" for line in throughputs))
    blocks += map(escape, notes.shared)
    if comparison.dropped:
        blocks.append(_dropped(comparison))
    return "\n\n".join(blocks) + "\n"


def _scaling_blocks(scaling: Scaling) -> list[str]:
    """A table of the settings by number of processes, the best ones in words, and how to read the figures."""
    labels = [point.label for point in scaling.points]
    return [
        f"**{escape(scaling_title(scaling))}**",
        _settings_table(labels, scaling_columns(scaling)),
        "\n".join(f"- {escape(sentence)}" for sentence in scaling_sentences(scaling)),
        *map(escape, scaling_notes(scaling)),
    ]


def _candidates_table(group: Group, heading: Heading, with_speedups: bool) -> str:
    lines = [f"**{escape(heading.name)}**", *map(escape, heading.details)]
    labels = [candidate.label for candidate in group.candidates]
    columns = comparison_columns(group.candidates, with_speedups)
    return f"{'<br>'.join(lines)}\n\n{_settings_table(labels, columns)}"


def _settings_table(labels: Iterable[str], columns: Iterable[TableColumn]) -> str:
    titles = ["setting"]
    lines = [[escape(label)] for label in labels]
    for column in columns:
        titles.append(column.title)
        for line, cell in zip(lines, column.cells, strict=True):
            line.append(cell.inline)
    return _markdown_table(titles, lines)


def _verdicts(group: Group) -> str:
    lines = [f"**{escape(recommendation(group))}**", ""]
    for sentence in verdicts(group):
        lines.append(f"- {escape(sentence)}")
    return "\n".join(lines)


def _dropped(comparison: Comparison) -> str:
    lines = [dropped_title(comparison), ""]
    for dropped in comparison.dropped:
        lines.append(f"- {escape(f'{dropped.label} ({run_count(len(dropped.rows))}): {short(dropped.reason)}')}")
    return "\n".join(lines)


def markdown_compiled(rows: Iterable[Row]) -> str:
    """A table of the compiler's work in each compiled setting, dropped rows included, then the graphs and the causes of
    recompiles. Empty if nothing was compiled.

    Settings are named by their overrides, and by the kind of the run if there are several kinds.
    """
    rows = list(rows)
    several_kinds = len({row.kind for row in rows}) > 1
    lines: dict[str, list[str]] = {}
    settings_by_fact: dict[str, list[str]] = {}
    for row in rows:
        setting = _typed_setting(row, several_kinds)
        if row.compile_mode == "eager" or row.num_graphs is None or setting in lines:
            continue
        counts = [fixed(getattr(row, column), 0) for column in COMPILER_COLUMNS.values()]
        lines[setting] = [escape(setting), *counts, escape(short(why_dropped(row) or ""))]
        for fact in _facts_of_graphs(row):
            settings = settings_by_fact.setdefault(fact, [])
            if setting not in settings:
                settings.append(setting)
    if not lines:
        return ""
    table = _markdown_table(["setting", *COMPILER_COLUMNS, "dropped because"], lines.values(), last_is_text=True)
    paragraphs = [table]
    for fact, settings in settings_by_fact.items():
        paragraphs.append(f"{escape(fact)}: {escape('; '.join(settings))}.")
    return "\n\n".join(paragraphs) + "\n"


def _facts_of_graphs(row: Row) -> list[str]:
    facts = []
    sizes = graph_sizes(row.graph_sizes)
    if sizes:
        facts.append(f"Graphs ({sizes})")
    for cause in recompile_causes(row):
        facts.append(f"Recompiled for {short(_failed_guard(cause.reason))}")
    return facts


def _failed_guard(reason: str) -> str:
    """The guard of a recompile, and the user's line that it comes from, if torch quotes one: without its path, which is
    cut off."""
    failed, comment = guard_message(VARIANT.sub("", reason))
    line = comment.partition("\n")[0].strip().removeprefix("# ").partition("  # ")[0]
    return f"{failed} ({line})" if line else failed


def _typed_setting(row: Row, with_kind: bool) -> str:
    typed = []
    if with_kind:
        typed.append(f"kind={row.kind}")
    for override in row.overrides:
        if not override.startswith("experiment="):
            typed.append(as_typed(override))
    return " ".join(typed)


def markdown_stages(diagnosis: Diagnosis) -> str:
    """The seconds of each stage of a compile by backend, under a line that names the network and the machine."""
    table = stage_table(diagnosis.stages or {})
    lines = []
    for backend, cells in table.seconds.items():
        lines.append([backend, *cells, table.totals[backend]])
    setting = f"{diagnosis.model}, {diagnosis.compile_mode}, {' '.join(diagnosis.overrides)}"
    heading = f"**{escape(setting)}**<br>{escape(machine_label(diagnosis.machine))}"
    return f"{heading}\n\n{_markdown_table(['compile, s', *table.stages, 'total'], lines)}\n"


def _markdown_table(titles: Sequence[str], lines: Iterable[Sequence[str]], last_is_text: bool = False) -> str:
    """A table with text in the first column, and in the last one if asked for, and numbers between them."""
    alignments = ["--:"] * len(titles)
    alignments[0] = ":--"
    if last_is_text:
        alignments[-1] = ":--"
    return "\n".join(_table_line(cells) for cells in [titles, alignments, *lines])


def text_table(titles: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """A table of text. A cell may hold Markdown; its lines are separated by <br>."""
    return "\n".join(_table_line(cells) for cells in [titles, [":--"] * len(titles), *lines])


def _table_line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"
