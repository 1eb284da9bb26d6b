"""The HTML page: read as a browser reads it, with a parser everywhere and in headless Chromium where there is one."""

import html
import json
import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from PIL import Image, ImageStat

from tests.sweeps import HOSTILE, diagnosis, epochs_of, gpu_sweep, hostile_sweep, scaling_sweep
from trainkit.analysis.comparison import Comparison, compare
from trainkit.diagnosis.remedies.cuda_graphs import remedy_for_skip
from trainkit.diagnosis.remedies.graph_breaks import remedy_for_break
from trainkit.diagnosis.remedies.recompiles import CHANGING_SIZE
from trainkit.report.page import MAX_PLOTTED_GROUPS, html_comparison, write_report
from trainkit.report.two_sweeps import two_sweeps
from trainkit.results.facts import GraphBreak
from trainkit.results.row import Row

VOID = {"meta", "br", "wbr"}
OURS = {
    *(
        "html",
        "head",
        "meta",
        "title",
        "style",
        "body",
        "main",
        "section",
        "h1",
        "h2",
        "h3",
        "p",
        "div",
        "span",
        "small",
    ),
    *(
        "ul",
        "li",
        "figure",
        "figcaption",
        "table",
        "thead",
        "tbody",
        "tr",
        "th",
        "td",
        "details",
        "summary",
        "pre",
        "br",
        "wbr",
        "b",
    ),
    *("svg", "g", "defs", "path", "use", "text", "line", "clippath", "rect"),
}


class Parsed(HTMLParser):
    """Tags, attributes and words of a page; `unclosed` is empty where all elements are closed in their order."""

    def __init__(self, page: str):
        super().__init__()
        self.tags: Counter[str] = Counter()
        self.attributes: list[tuple[str, str]] = []
        self.words: list[str] = []
        self.unclosed: list[str] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_startendtag(tag, attrs)
        self.unclosed += [] if tag in VOID else [tag]

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        self.attributes += [(name, value or "") for name, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        if self.unclosed[-1:] == [tag]:
            self.unclosed.pop()

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    @property
    def text(self) -> str:
        return "\n".join(self.words)

    def values(self, name: str) -> list[str]:
        return [value for attribute, value in self.attributes if attribute == name]


CURVE_TITLES = ("Training loss", "Validation loss", "Validation accuracy")


def page_of(rows: list[Row], num_planned_steps: int | None = None, title: str = "a sweep") -> str:
    return html_comparison(compare(rows, num_planned_steps), {row.run_id: epochs_of(row) for row in rows}, title)


SWEEPS: dict[str, Callable[[], list[Row]]] = {
    "five modes": gpu_sweep,
    "one repeat": lambda: gpu_sweep(1),
    "one setting": lambda: gpu_sweep()[:1],
    "no eager": lambda: [row for row in gpu_sweep() if row.compile_mode != "eager"],
    "all dropped": lambda: gpu_sweep()[-2:],
    "two groups": lambda: [
        *gpu_sweep(),
        *(replace(row, model="gpt2", run_id=f"b/{row.run_id}") for row in gpu_sweep()),
    ],
    "nothing known": lambda: [Row(run_id="a", status="ok", compile_mode="default", step_time_ms_p50=1.0)],
    "hostile": hostile_sweep,
    "nothing": list,
}


# what it says


def test_the_advice_and_the_verdicts_stand_before_all_figures():
    text = Parsed(page_of(gpu_sweep())).text
    order = ["Train with max-autotune: 1.50x", "reduce-overhead: 1.45x [", "speed-up over eager", "Peak memory"]
    assert [text.index(words) for words in order] == sorted(text.index(words) for words in order)


def test_every_quantity_is_drawn_once_with_a_finding_that_can_be_read_out():
    page = Parsed(page_of(gpu_sweep()))
    titles = ["Speed-up over eager", "Time to reach a step", "Peak memory", "Compile time", "Where a step's time goes"]
    assert [words for words in page.words if words in (*titles, *CURVE_TITLES)][:8] == [*titles, *CURVE_TITLES]
    findings = [value for value in page.values("aria-label") if ":" in value]
    assert len(findings) == page.values("role").count("img") == 8
    assert findings[0].startswith("Speed-up over eager: max-autotune 1.50x [")
    assert findings[1].startswith("Time to reach a step: max-autotune pays off after 9,500 steps")


def test_graph_breaks_recompiles_and_skips_stand_with_their_source_and_settings():
    text = Parsed(page_of(gpu_sweep())).text
    assert "models/resnet.py:41: Unsupported Tensor.item() call with capture_scalar_outputs=False" in text
    assert "every compiled setting" in text
    assert "tensor 'x' size mismatch at index 0. expected 64, actual 40" in text
    again = replace(gpu_sweep()[1], recompiles=["0/0: x.size()[0] == 1"] * 2, recompile_shapes=[[[40, 3]], [[9, 3]]])
    told = Parsed(page_of([replace(again, recompile_times_s=[1.5, 0.25])])).text.split("Recompiles")[1].split("\n")
    for cause, cost in (
        ("0/0: x.size()[0] == 1 (by a batch of [40, 3])", "1.50 s"),
        ("0/0: x.size()[0] == 1 (by a batch of [9, 3])", "0.250 s"),
    ):
        assert told.index(cause) < told.index(CHANGING_SIZE.fix, told.index(cause)) < told.index(cost)
    skipped = text.split("skipping cudagraphs due to cpu device (arg0_1)")[1].split("Same numbers")[0].split()
    assert skipped[-2:] == ["max-autotune", "reduce-overhead"]
    assert remedy_for_skip("skipping cudagraphs due to cpu device (arg0_1)").fix.split() == skipped[4:-2]
    for remedy in (remedy_for_break(GraphBreak(id="GB0124")), CHANGING_SIZE):
        assert {remedy.cause, remedy.fix} <= set(text.splitlines())


def test_the_environment_is_said_with_all_values_that_differ():
    rows = [replace(row, git_commit="abc", git_dirty=row.repeat == 1) for row in gpu_sweep()]
    words = [word.strip() for word in Parsed(page_of(rows)).words if word.strip()]
    assert words[words.index("commit") + 1] == "abc"
    assert words[words.index("uncommitted changes") + 1] == "no, yes"
    assert "None" not in words


def test_a_dropped_job_stands_with_its_whole_reason():
    page = Parsed(page_of(gpu_sweep()))
    text = page.text.split("Dropped: 2 runs")[1]
    assert "timeout: stopped after 600 s" in text
    assert 'line 729, in compile\n    <no & such "graph">' in text
    assert page.tags["details"] == page.tags["pre"] == 1


def test_what_no_row_knows_is_left_out():
    bare = [replace(row, check_passed=None, graph_breaks=[], forward_time_ms_p50=None) for row in gpu_sweep(2)[:10]]
    bare = [replace(row, **dict.fromkeys([f for f in vars(row) if f.startswith("check_")])) for row in bare]
    page = Parsed(html_comparison(compare(bare), {}, "bare"))
    for title in (
        "Graph breaks",
        "Same numbers",
        "Where a step's time goes",
        "Training loss",
        "Validation loss",
        "Validation accuracy",
        "Dropped",
    ):
        assert title not in page.text
    assert page.values("role").count("img") == 4


def test_a_setting_has_one_colour_in_all_plots_and_groups():
    both = [*gpu_sweep(), *(replace(row, model="gpt2") for row in gpu_sweep() if row.compile_mode != "default")]
    page = page_of(both)
    keys = re.findall(r'stroke="var\(--(\w+)\)"[^>]*/></svg><span>([\w-]+)</span>', page)
    assert len({color for color, _ in keys}) == len({label for _, label in keys}) == len(set(keys)) == 5


# how it is made


@pytest.mark.parametrize("name", SWEEPS)
def test_a_page_is_whole_and_only_what_is_written_here(name):
    page = Parsed(page_of(SWEEPS[name]()))
    assert page.unclosed == []
    assert set(page.tags) <= OURS
    assert not [attribute for attribute, _ in page.attributes if attribute.startswith("on")]
    assert page.tags["html"] == page.tags["main"] == page.tags["title"] == 1


@pytest.mark.parametrize("name", SWEEPS)
def test_a_page_loads_nothing_from_elsewhere(name):
    text = page_of(SWEEPS[name]())
    page = Parsed(text)
    assert page.values("content")[0].startswith("default-src 'none'; style-src 'unsafe-inline'; img-src data:;")
    assert not page.values("src")
    assert all(target.startswith("#") for target in page.values("href") + page.values("xlink:href"))
    assert all(place.startswith("url(#") for _, value in page.attributes for place in re.findall(r"url\([^)]*", value))
    style = text.split("<style>")[1].split("</style>")[0]
    assert "url(" not in style
    assert "@import" not in style


@pytest.mark.parametrize("name", SWEEPS)
def test_ids_are_unique_and_what_is_referred_to_is_there(name):
    page = Parsed(page_of(SWEEPS[name]()))
    ids = page.values("id")
    assert len(ids) == len(set(ids))
    used = {place for _, value in page.attributes for place in re.findall(r"url\(#([^)]*)", value)}
    assert used | {target[1:] for target in page.values("href")} == set(ids)


def test_every_colour_of_a_plot_is_defined_for_light_and_for_dark():
    text = page_of(gpu_sweep() + hostile_sweep())
    used = set(re.findall(r"var\((--\w+)\)", text))
    light, dark = text.split("@media screen and (prefers-color-scheme: dark)")
    assert used <= set(re.findall(r"(--\w+):", light))
    assert used <= set(re.findall(r"(--\w+):", dark))
    assert not [style for style in Parsed(text).values("style") if "#" in style and "url(#" not in style]


def test_words_of_users_and_logs_are_shown_as_they_are():
    text = Parsed(page_of(hostile_sweep(), title="<b>title</b>")).text
    for words in HOSTILE[:7]:
        assert f"optimizer.note={words}" in text
    assert "<b>title</b>" in text
    assert f"</pre></details>{HOSTILE[1]}\n{HOSTILE[4]}" in text
    assert not set(text) & {"\x1b", "\x07", "\x00", "\u202e"}


def test_the_same_rows_give_the_same_page():
    first = page_of(gpu_sweep())
    page_of(hostile_sweep())
    assert page_of(gpu_sweep()) == first


def test_two_sweeps_stand_side_by_side_with_what_one_of_them_lacks():
    first = gpu_sweep()
    second = []
    for row in first:
        if row.compile_mode == "default" and row.status == "ok":
            second.append(replace(row, step_time_ms_p50=1.2 * row.step_time_ms_p50))
        elif row.compile_mode == "eager":
            second.append(row)
        elif row.compile_mode == "reduce-overhead":
            second.append(replace(row, status="oom", error="no memory", step_time_ms_p50=None))
    pair = two_sweeps(("may", "june"), first, second)
    text = Parsed(html_comparison(compare(first + second), {}, "a sweep", pair=pair)).text
    section = text.split("may and june, side by side")[1]
    assert "1.20x [1.19, 1.21]" in section
    assert section.index("no measurable difference") < section.index("default,") < section.index("slower")
    assert "max-autotune, dynamic=null, optimizer.lr=0.1: only in may" in section
    assert "failed in june: reduce-overhead, dynamic=null, optimizer.lr=0.1: oom: no memory" in section


def test_the_first_groups_alone_have_plots_and_the_page_says_so():
    rows = []
    for number in range(MAX_PLOTTED_GROUPS + 1):
        rows += [replace(row, run_id=f"{number}/{row.run_id}", model=f"net{number}") for row in gpu_sweep(1)[:2]]
    page = Parsed(page_of(rows))
    assert f"Plots are drawn of the first {MAX_PLOTTED_GROUPS} of {MAX_PLOTTED_GROUPS + 1} groups." in page.text
    few = Parsed(page_of(rows[:2]))
    assert page.tags["figure"] == MAX_PLOTTED_GROUPS * few.tags["figure"]
    assert page.tags["table"] == (MAX_PLOTTED_GROUPS + 1) * few.tags["table"]


def test_nothing_measured_is_said():
    assert "Nothing to compare: no run was measured." in Parsed(html_comparison(Comparison((), ()), {}, "none")).text


def test_a_report_is_written_as_markdown_and_as_html(tmp_path):
    folder = tmp_path / "my <sweep>"
    folder.mkdir()
    written = write_report(folder, compare(gpu_sweep()), {})
    assert written == (folder / "report.md", folder / "report.html")
    assert "| max-autotune | 1.50x (" in written[0].read_text(encoding="utf-8")
    assert "<title>my &lt;sweep&gt;</title>" in written[1].read_text(encoding="utf-8")


# in a browser

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
needs_browser = pytest.mark.skipif(BROWSER is None, reason="no chromium, chromium-browser or google-chrome here")
# A frame, for a window is never narrower than 500 px.
PROBE = """<!doctype html><title>probe</title>
<iframe width="{width}" height="900" style="border: 0" srcdoc="{page}"></iframe>
<script>
function isBroken(node, match) {{
  const range = document.createRange();
  range.setStart(node, match.index);
  range.setEnd(node, match.index + match[0].length);
  return new Set([...range.getClientRects()].map(rect => rect.top)).size > 1;
}}
function brokenWords(root) {{
  const broken = [];
  for (const cell of root.querySelectorAll(".numbers td:first-child")) {{
    const texts = document.createTreeWalker(cell, NodeFilter.SHOW_TEXT);
    for (let node = texts.nextNode(); node; node = texts.nextNode())
      for (const match of node.data.matchAll(/[a-z]+/g))
        if (isBroken(node, match)) broken.push(match[0]);
  }}
  return broken;
}}
function fontSizes(root, selector) {{
  const elements = [...root.querySelectorAll(selector)];
  return elements.map(element => parseFloat(getComputedStyle(element).fontSize));
}}
onload = () => {{
  const inner = frames[0], root = inner.document.documentElement;
  const heights = [...root.querySelectorAll("svg text")].map(text => text.getBoundingClientRect().height);
  document.title = JSON.stringify({{
    window: inner.innerWidth,
    content: root.scrollWidth,
    text_height: Math.min(...heights),
    num_scripts: root.querySelectorAll("script").length,
    title: inner.document.title,
    broken_words: brokenWords(root),
    median_font: Math.min(...fontSizes(root, ".numbers td")),
    range_font: Math.max(...fontSizes(root, ".numbers td small")),
  }});
}};
</script>"""


@dataclass(frozen=True)
class Drawn:
    """What a browser made of a page. Lengths are px: of the window, of the content, of the smallest text of a plot, of
    the medians and of the ranges in a table. `broken_words` are those of labels that go on in the next line."""

    window: int
    content: int
    text_height: float
    num_scripts: int
    title: str
    broken_words: list[str]
    median_font: float
    range_font: float


def browse(page: Path, *options: str) -> str:
    """The output of a headless Chromium that opens the page with a profile of its own."""
    profile = page.with_suffix(".profile")
    quiet = ["--disable-gpu", "--disable-background-networking", "--disable-component-update", "--disable-sync"]
    flags = ["--headless", "--no-sandbox", "--no-first-run", "--hide-scrollbars", f"--user-data-dir={profile}", *quiet]
    ended = subprocess.run(
        [str(BROWSER), *flags, *options, page.as_uri()], capture_output=True, text=True, check=True, timeout=120
    )
    return ended.stdout


def drawn(page: str, tmp_path: Path, width: int) -> Drawn:
    """The page in a window of this width, without its policy, for what keeps scripts out must be that no word of it is
    one."""
    file = tmp_path / "probe.html"
    open_page = re.sub(r"<meta http-equiv[^>]*>", "", page)
    file.write_text(PROBE.format(width=width, page=html.escape(open_page)))
    title = browse(file, "--dump-dom").split("<title>")[1].split("</title>")[0]
    return Drawn(**json.loads(html.unescape(title)))


@needs_browser
def test_a_browser_reads_the_page_whole_and_runs_no_script(tmp_path):
    page = tmp_path / "page.html"
    page.write_text(page_of(hostile_sweep()))
    dom = Parsed(browse(page, "--dump-dom"))
    written = Parsed(page.read_text())
    assert dom.tags == written.tags
    assert "".join(dom.words).split() == "".join(written.words).split()
    window = drawn(page.read_text(), tmp_path, 1280)
    assert (window.num_scripts, window.title) == (0, "a sweep")


@needs_browser
def test_the_policy_keeps_even_a_script_of_the_page_from_running(tmp_path):
    page = tmp_path / "page.html"
    page.write_text(page_of(gpu_sweep()[:2]).replace("</body>", "<script>document.title = 'ran'</script></body>"))
    assert "<title>a sweep</title>" in browse(page, "--dump-dom")


@needs_browser
@pytest.mark.parametrize("name", ["five modes", "hostile"])
def test_on_a_phone_nothing_but_tables_scrolls_sideways_and_text_is_not_tiny(tmp_path, name):
    phone = drawn(page_of(SWEEPS[name]()), tmp_path, 390)
    assert phone.window == phone.content == 390
    assert phone.text_height >= 13


def scaling_with_long_names() -> list[Row]:
    rows = []
    for row in scaling_sweep():
        if row.compile_mode == "reduce-overhead" and row.world_size > 1:
            row = replace(row, overrides=[*row.overrides, "ddp.optimize_ddp=no_optimization"])
        rows.append(row)
    return rows


@needs_browser
@pytest.mark.parametrize("width", [1280, 390])
def test_no_word_of_a_name_is_broken(tmp_path, width):
    assert drawn(page_of(scaling_with_long_names()), tmp_path, width).broken_words == []


@needs_browser
def test_print_breaks_no_word_and_sets_ranges_smaller_than_medians(tmp_path):
    page = page_of(scaling_with_long_names()).replace("@media print", "@media all")
    paper = drawn(page, tmp_path, 703)  # an A4 page within its margins
    assert paper.window == paper.content
    assert paper.broken_words == []
    assert paper.range_font < paper.median_font


@needs_browser
@pytest.mark.parametrize("width", [1280, 390])
def test_the_page_is_drawn_in_light_and_in_dark(tmp_path, width):
    page = tmp_path / "page.html"
    page.write_text(page_of(gpu_sweep()))
    means = []
    for scheme in (0, 1):  # dark, light
        shot = tmp_path / f"{scheme}.png"
        look = [f"--window-size={width},2400", f"--blink-settings=preferredColorScheme={scheme}"]
        browse(page, *look, f"--screenshot={shot}")
        image = Image.open(shot).convert("RGB")
        assert image.width == width
        drawn = ImageStat.Stat(image)
        assert min(drawn.stddev) > 15
        assert len(image.getcolors(2**24) or []) > 100
        means.append(sum(drawn.mean) / 3)
    assert means[0] < 80
    assert means[1] > 200


def test_a_diagnosis_is_a_section_of_the_page(tmp_path):
    _, path = write_report(tmp_path, compare(gpu_sweep()), {}, [diagnosis()])
    text = Parsed(path.read_text()).text
    for words in (
        "Found: 1 graph break, 1 cause of recompiles.",
        "net.py:7",
        "torch.where",
        "75.0 %",
        "67.5 % to 82.5 %",
        "the GPU works for 25.0 % of the compiled step (12.5 % to 50.0 %) and waits for the host in",
        "0.25 ms (0.12 to 0.50 ms), 25.0 % of the forward step",
        "3 recompiles, 2.00 s",
    ):
        assert words in text, words
    assert text.split("Stages of a compile, in seconds")[1].split()[:8] == [
        *("backend", "capture", "lowering", "eager", "0.50", "-", "inductor", "0.50"),
    ]


@pytest.mark.parametrize("words", HOSTILE)
def test_what_a_diagnosed_network_says_is_shown_as_text(words):
    page = html_comparison(compare(gpu_sweep()), {}, "a sweep", [diagnosis(words)])
    plain = html_comparison(compare(gpu_sweep()), {}, "a sweep", [diagnosis("plain")])
    assert Parsed(page).unclosed == []
    assert Parsed(page).tags - Parsed(plain).tags <= Counter(["details", "summary", "pre"] * 9)
