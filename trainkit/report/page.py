"""The comparison as one HTML page that loads nothing from elsewhere and runs no script.

Every word that came from a user or a log goes through `_text`; the rest is written here, in page.css and in svg.py.
"""

import html
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from trainkit.analysis.candidates import Candidate
from trainkit.analysis.comparison import Comparison, Group
from trainkit.diagnosis.findings import Diagnosis, Finding
from trainkit.diagnosis.remedies.cuda_graphs import remedy_for_skip
from trainkit.diagnosis.remedies.matching import Remedy
from trainkit.formatting import clean, decimals, fixed, percent, scientific, seconds, short, size
from trainkit.report.labels import (
    ROUNDS,
    busy,
    count_of_findings,
    diagnosed,
    dropped_title,
    expected,
    finding_lines,
    finding_title,
    graph_breaks,
    link_of,
    machine_of,
    machines_of,
    notes_of,
    num_runs,
    phase_words,
    place_of,
    recompiles,
    stage_words,
    work_of,
)
from trainkit.report.plots import Epochs, Looks, Plot, costs_of, curves_of, looks_of
from trainkit.report.svg import COLORS
from trainkit.report.tables import columns_of, markdown_comparison
from trainkit.report.verdicts import recommendation, verdict
from trainkit.results.facts import ShapeLatency, Stage
from trainkit.results.row import Row

# No network and no script, whatever a label says: only the page's own styles.
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
STYLES = COLORS + Path(__file__).with_name("page.css").read_text(encoding="utf-8")
LONGEST_LINE = 160  # characters of a reason that are shown unfolded
TIMES = ("calls", "p50 ms", "p90 ms", "p99 ms")
MANY = 8  # settings that a list shows unfolded

# The columns of the tables below the plots, and the fields of a Row in them.
COMPILED = {
    "graphs": "num_graphs",
    "graph breaks": "num_graph_breaks",
    "recompiles": "num_recompiles",
    "CUDA graphs": "num_cudagraphs",
    "skipped": "num_cudagraph_skips",
    "limit hit": "recompile_limit_hit",
    "steps uncompiled": "num_eager_steps",
    "cache found": "cache_found",
    "hits": "cache_hits",
    "misses": "cache_misses",
}
PEAKS = {
    "allocated": "peak_allocated_bytes",
    "reserved": "peak_reserved_bytes",
    "device": "peak_device_bytes",
    "allocated, compiling": "compile_peak_allocated_bytes",
    "reserved, compiling": "compile_peak_reserved_bytes",
    "device, compiling": "compile_peak_device_bytes",
}
CHECKS = {
    "passed": "check_passed",
    "loss": "check_loss_rel_diff",
    "of eager": "check_eager_loss_rel_diff",
    "gradients": "check_grad_rel_diff",
    "of eager ": "check_eager_grad_rel_diff",
    "parameters": "check_param_rel_diff",
    "of eager  ": "check_eager_param_rel_diff",
    "reason": "check_reason",
}
ENVIRONMENT = {
    "device": "device_name",
    "devices": "num_devices",
    "processes": "world_size",
    "torch": "torch_version",
    "triton": "triton_version",
    "CUDA": "cuda_version",
    "Python": "python_version",
    "lightning": "lightning_version",
    "precision": "precision",
    "matmul precision": "matmul_precision",
    "strategy": "strategy",
    "backend": "compile_backend",
    "compile scope": "compile_scope",
    "compile cache": "compile_cache",
    "commit": "git_commit",
    "uncommitted changes": "git_dirty",
}


def write_report(
    folder: Path | str, comparison: Comparison, epochs: Epochs, diagnoses: Sequence[Diagnosis] = ()
) -> tuple[Path, Path]:
    """Write `report.md` and `report.html` into a directory. Returns their paths, in this order."""
    folder = Path(folder)
    markdown, page = folder / "report.md", folder / "report.html"
    markdown.write_text(markdown_comparison(comparison), encoding="utf-8")
    page.write_text(html_comparison(comparison, epochs, folder.resolve().name, diagnoses), encoding="utf-8")
    return markdown, page


def html_comparison(comparison: Comparison, epochs: Epochs, title: str, diagnoses: Sequence[Diagnosis] = ()) -> str:
    """The page: for each group first what to do, then what that rests on; then the diagnoses; at the end what was
    dropped and why.

    `epochs` are the records of the runs by the `run_id` of their rows. The same input gives the same text.
    """
    looks = looks_of(comparison.groups)
    notes, notes_of_all = notes_of(comparison.groups)
    told = zip(comparison.groups, machines_of(comparison.groups), notes, strict=True)
    sections = [_section(*of, looks, epochs, f"g{n}") for n, of in enumerate(told)]
    nothing = "" if sections else "<p class=advice>Nothing to compare: no run was measured.</p>"
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{POLICY}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{_text(title)}</title>
<style>
{STYLES}</style>
</head>
<body>
<h1>{_text(title)}</h1>
<main>
{nothing}{"".join(sections)}{_notes(notes_of_all)}{"".join(map(_diagnosis, diagnoses))}{_dropped(comparison)}</main>
</body>
</html>
"""


def _notes(notes: Sequence[str]) -> str:
    return "\n".join(f"<p class=note>{_text(note)}</p>" for note in notes)


def _section(group: Group, machine: str, notes: Sequence[str], looks: Looks, epochs: Epochs, name: str) -> str:
    verdicts = _list("Each setting", [_key(looks, s.label, verdict(s, group)) for s in group.candidates])
    return f"""<section>
<h2>{_text(work_of(group))}</h2>
{machine and f"<p class=muted>{_text(machine)}</p>"}
<div class=advice><p>{_text(recommendation(group))}</p>{verdicts}</div>
{_notes(notes)}
{_ranking(group, looks)}
<div class=plots>{"".join(_figure(plot, looks) for plot in costs_of(group, looks, name))}</div>
<div class=plots>{"".join(_figure(plot, looks) for plot in curves_of(group, looks, epochs, name))}</div>
{"".join(_facts(group, looks))}
</section>
"""


def _figure(plot: Plot, looks: Looks) -> str:
    keys = [f"{_key(looks, label, label)} <small>{_text(word)}</small>" for label, word in plot.keys]
    legend = _list("Key", keys) if keys else ""
    note = f"<p class=muted>{_text(plot.note)}</p>" if plot.note else ""
    return f"<figure><figcaption>{_text(plot.title)}</figcaption>{plot.svg}{legend}{note}</figure>\n"


def _list(title: str, items: Sequence[str]) -> str:
    """Items of HTML; many are folded away under the title."""
    lines = f"<ul>{''.join(f'<li>{item}</li>' for item in items)}</ul>"
    return lines if len(items) <= MANY else f"<details><summary>{_text(title)}</summary>{lines}</details>"


def _key(looks: Looks, label: str, words: str) -> str:
    """Words behind a short line drawn as the setting is in the plots."""
    look = looks[label]
    dash = f' stroke-dasharray="{" ".join(map(str, look.dash))}"' if look.dash else ""
    line = f'<line x1="0" y1="5" x2="20" y2="5" stroke="{look.variable}" stroke-width="4"{dash}/>'
    return f'<svg class=key viewBox="0 0 20 10" aria-hidden="true">{line}</svg><span>{_text(words)}</span>'


def _ranking(group: Group, looks: Looks) -> str:
    columns = columns_of(group.candidates)
    lines = []
    for i, setting in enumerate(group.candidates):
        cells = [_text(column.values[i]) + _below(column.ranges[i]) for column in columns]
        lines.append([_key(looks, setting.label, setting.label), *cells])
    return _table("", ["setting", *(f"{column.name} {column.unit}" for column in columns)], lines, numbers=True)


def _below(between: str) -> str:
    return f"<br><small>{_text(between)}</small>" if between else ""


def _facts(group: Group, looks: Looks) -> Iterable[str]:
    """What the rows say beside times, each table only where they say it."""
    compiled = [setting for setting in group.candidates if not setting.is_eager]
    checked = [s for s in group.candidates if _said(s.rows, "check_passed") or _said(s.rows, "check_reason")]
    yield _latencies(group, looks)
    yield _chains(group, looks)
    yield _by_setting("What the compiler did", COMPILED, compiled, looks)
    yield _causes("Graph breaks", compiled, looks, graph_breaks)
    yield _causes("Recompiles", compiled, looks, _recompiles, _recompile_s)
    yield _causes("CUDA graphs skipped", compiled, looks, _skips)
    yield _by_setting("Same numbers as eager? Largest relative difference to float64", CHECKS, checked, looks)
    yield _by_setting("Peak memory", PEAKS, group.candidates, looks)
    rows = [row for setting in group.candidates for row in setting.rows]
    known = [(name, words) for name, field in ENVIRONMENT.items() if (words := _said(rows, field))]
    yield _table("Environment", ["what", "value"], [[_text(name), _text(words)] for name, words in known])


def _latencies(group: Group, looks: Looks) -> str:
    """Of the first repeat of each setting: a call's milliseconds by the shape of its inputs."""
    lines = []
    for setting in group.candidates:
        for latency in setting.rows[0].latency_by_shape or ():
            shape = _text(" x ".join(map(str, latency.shape)))
            lines.append([_key(looks, setting.label, setting.label), shape, *_times(latency)])
    return _table("Latency by shape of the inputs", ["setting", "shape", *TIMES], lines, numbers=True)


def _chains(group: Group, looks: Looks) -> str:
    """Of the first repeat of each setting with a chain: which link answered, and how fast."""
    lines = []
    for setting in group.candidates:
        for link in setting.rows[0].chain or ():
            words = [link_of(link, setting.rows[0]), link.effective_mode or "-", fixed(link.num_graphs, 0)]
            words += [expected(link), percent(link.call_frac)]
            lines.append([_key(looks, setting.label, setting.label), *map(_text, words), *_times(link)])
    heads = ["setting", "link", "got", "graphs", "expected ms", "share", *TIMES]
    return _table("Which link answered", heads, lines, numbers=True)


def _times(measured: ShapeLatency | Stage) -> list[str]:
    times_ms = [measured.time_ms_p50, measured.time_ms_p90, measured.time_ms_p99]
    digits = decimals(times_ms, 4)
    return [_text(fixed(measured.num_calls, 0)), *(_text(fixed(ms, digits)) for ms in times_ms)]


def _by_setting(title: str, fields: dict[str, str], settings: Sequence[Candidate], looks: Looks) -> str:
    """A column for each field that a row knows; values in which the repeats differ stand side by side."""
    known = {name: field for name, field in fields.items() if any(_said(setting.rows, field) for setting in settings)}
    lines = [
        [_key(looks, s.label, s.label), *(_text(_said(s.rows, field) or "-") for field in known.values())]
        for s in settings
    ]
    return _table(title, ["setting", *known], lines if known else [], numbers=True)


Cause = tuple[str, Remedy]  # in torch's words, and what to do about it


def _causes(
    title: str,
    settings: Sequence[Candidate],
    looks: Looks,
    causes: Callable[[Row], Iterable[Cause]],
    cost_s: Callable[[Row, Cause], float] | None = None,
) -> str:
    """Each distinct cause once, with what to do about it, the settings in which it was found, and the most that it
    cost in a run."""
    found: dict[Cause, list[str]] = {}
    for setting in settings:
        for cause in dict.fromkeys(cause for row in setting.rows for cause in causes(row)):
            found.setdefault(cause, []).append(setting.label)
    lines = []
    for cause, labels in found.items():
        every = len(settings) > 1 and len(labels) == len(settings)
        where = "every compiled setting" if every else "".join(f"<div>{_key(looks, of, of)}</div>" for of in labels)
        cost = [] if cost_s is None else [max(cost_s(row, cause) for s in settings for row in s.rows)]
        costs = [_text(seconds(value or None)) for value in cost]
        words, told = cause
        first = words.strip().partition("\n")[0]
        lines.append([_folded(first, words), _remedy(told), where, *costs])
    return _table(title, ["cause", "what to do", "found in", *(["cost"] if cost_s else [])], lines)


def _recompiles(row: Row) -> list[Cause]:
    return [(cause, told) for cause, told, _ in recompiles(row)]


def _recompile_s(row: Row, cause: Cause) -> float:
    return sum(time_s or 0.0 for *of, time_s in recompiles(row) if tuple(of) == cause)


def _skips(row: Row) -> list[Cause]:
    return [(reason, remedy_for_skip(reason)) for reason in row.cudagraph_skips or ()]


def _remedy(remedy: Remedy) -> str:
    return f"<b>{_text(remedy.cause)}</b><br>{_text(remedy.fix)}"


def _said(rows: Iterable[Row], field: str) -> str:
    """The distinct values of a field in words, of measured ones the largest; "" where no row knows it."""
    values = [value for row in rows if (value := getattr(row, field)) not in (None, "")]
    if values and field.endswith(("_bytes", "_diff")):
        values = [max(values)]
    return ", ".join(dict.fromkeys(_words(field, value) for value in values))


def _words(field: str, value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if field.endswith("_bytes"):
        return size(value)
    if field.endswith("_diff"):
        return scientific(value)
    return fixed(value, 0) if isinstance(value, int) else str(value)


def _diagnosis(diagnosis: Diagnosis) -> str:
    """What scripts/diagnose.py found: phases, findings, and the stages of a compile where they were asked for."""
    phases = [
        [_text(phase.name), *(_text(said) + _below(between) for said, between in phase_words(phase).values())]
        for phase in diagnosis.phases
    ]
    heads = ["phase", *(phase_words(diagnosis.phases[0]) if diagnosis.phases else ())]
    errors = "".join(f"<p class=note>{_text(f'{p.name}: {p.error}')}</p>" for p in diagnosis.phases if p.error)
    findings = "".join(_finding(finding, diagnosis) for finding in diagnosis.findings)
    measured = f"<p class=muted>{ROUNDS}</p>\n" if any(phase.step_time_ms for phase in diagnosis.phases) else ""
    waits = filter(None, (busy(phase, diagnosis.compile_mode) for phase in diagnosis.phases))
    measured += "".join(f"<p>{_text(said)}</p>\n" for said in waits)
    names, by_backend = stage_words(diagnosis.stages or {})
    spent = [[_text(backend), *cells] for backend, cells in by_backend.items()]
    return f"""<section>
<h2>Diagnosis: {_text(diagnosed(diagnosis))}</h2>
<p class=muted>{_text(machine_of(diagnosis.machine))}</p>
<div class=advice><p>{_text(count_of_findings(diagnosis))}</p></div>
{errors}{_table("", heads, phases, numbers=True)}
{measured}{findings}
{_table("Stages of a compile, in seconds", ["backend", *names], spent, numbers=True)}
</section>
"""


def _finding(finding: Finding, diagnosis: Diagnosis) -> str:
    lines = finding_lines(finding, diagnosis.phases)
    torchs = _folded("torch says", f"torch says\n{finding.reason}")
    said = "<br>".join(f"<b>{name}</b> {_text(words)}" for name, words in lines.items() if name != "torch")
    code = f"<pre>{_text(finding.code)}</pre>" if finding.code else ""
    return f"""<h3>{_text(finding_title(finding))}</h3>
<p class=muted>{_text(place_of(finding))}</p>{code}
<p>{said}</p>
{torchs}
"""


def _dropped(comparison: Comparison) -> str:
    if not comparison.dropped:
        return ""
    lines = []
    for drop in comparison.dropped:
        errors = dict.fromkeys(row.error for row in drop.rows if row.error and row.status != "ok")
        runs = ", ".join(row.run_id for row in drop.rows)
        reason = _folded(drop.reason, "\n\n".join(errors) or drop.reason)
        lines.append([_text(drop.label), reason, f"{_text(num_runs(len(drop.rows)))}:<br>{_text(runs)}"])
    table = _table("", ["setting", "reason", "runs"], lines)
    return f"<section>\n<h2>{_text(dropped_title(comparison))}</h2>\n{table}</section>\n"


def _table(title: str, heads: Sequence[str], lines: Sequence[Sequence[str]], numbers: bool = False) -> str:
    """A table in a box of its own that scrolls; "" where it has no lines. Its cells are HTML, the rest is words."""
    if not lines:
        return ""
    head = "".join(f"<th>{_text(head)}</th>" for head in heads)
    body = "\n".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in line)}</tr>" for line in lines)
    kind = " class=numbers" if numbers else ""
    above = f"<h3>{_text(title)}</h3>\n" if title else ""
    table = f"<table{kind}><thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody></table>"
    return f'{above}<div class=box tabindex=0 role=region aria-label="{_text(title or heads[0])}">{table}</div>\n'


def _folded(first: str, whole: str) -> str:
    """One line as it is; one of several, or a long one, as a summary of the whole."""
    if len(first) <= LONGEST_LINE and len(whole.strip().splitlines()) < 2:
        return _text(first)
    lines = "\n".join(map(_text, whole.strip().splitlines()))
    return f"<details><summary>{_text(short(first))}</summary><pre>{lines}</pre></details>"


def _text(words: str) -> str:
    """The one way into the page for words of a user or a log: as text, or in an attribute's quotes."""
    return html.escape(clean(words))
