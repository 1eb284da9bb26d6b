"""The pages of studies: each says what was claimed and measured, and all of it is on the pages of all."""

import re
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.sweeps import OPS, crossing, ops_row
from trainkit.diagnosis.findings import Diagnosis, write_diagnosis
from trainkit.report.studies import write_pages
from trainkit.report.study_page import RULE
from trainkit.results.runs import Run, write_measurements

STATIC = "compile.mode=default compile.dynamic=false"
DYNAMIC = "compile.mode=default compile.dynamic=true"
CHAIN = f"""
study:
  question: Is a chain faster?
  claims:
    - source: T3
      claim: Slower at 1, faster at 30.
      published: 0.35 to 5.32
      work: data.batch_size=8
      comparisons:
        - choice: {STATIC} model.num_ops=1
          baseline: compile.mode=eager model.num_ops=1
          published: {{choice: 37.67 us, baseline: 13.32 us}}
        - choice: {STATIC} model.num_ops=30
          baseline: compile.mode=eager model.num_ops=30
          published: {{choice: 42.36 us, baseline: 225.63 us}}
    - {{source: T2, claim: Newer is faster., published: 68 -> 65 ms, not_measured: Python 3.14 is not here.}}
  comparisons:
    - {{choice: {DYNAMIC}, baseline: compile.mode=eager}}
  why: Launches take longest.
  not_measured: {{forward only: no time}}
"""
OWN = f"""
study:
  question: What does it cost?
  comparisons:
    - {{choice: {DYNAMIC}, baseline: {STATIC}, column: COLUMN}}
"""
DEADLINES = """
study:
  question: Are calls in time?
  claims:
    - source: T4
      claim: With a fallback.
      comparisons:
        - column: deadline_miss_frac
          choice: forward.fallback!=null
          baseline: forward.fallback=null
          claimed: better
"""
AGAIN = f"""
    - source: T2
      claim: Slower at 1.
      comparisons:
        - {{choice: {STATIC} model.num_ops=1, baseline: compile.mode=eager model.num_ops=1, claimed: below 1}}
""".lstrip("\n")
ANSWERS = """
- {study: chain, answer: "From 10 on, with [brackets]."}
- {study: later, answer: Nobody knows.}
"""
OTHERS = """
- {source: T4, claim: A print breaks the graph., verdict: held, measured: 1 break, command: make test, page: ../x/y.md}
- {source: T4, claim: Two streams help., verdict: not measured, measured: no time.}
"""


@pytest.fixture
def folder(tmp_path):
    """A folder with the rows of two studies, and a third study without rows in its `experiments`."""
    experiments = tmp_path / "experiments"
    experiments.mkdir()
    (experiments / "chain.yaml").write_text(CHAIN)
    (experiments / "cost.yaml").write_text(OWN.replace("COLUMN", "compile_time_s"))
    (experiments / "later.yaml").write_text(OWN.replace("cost?", "later?").replace("COLUMN", "null"))
    write_rows(tmp_path / "chain.jsonl", crossing())
    write_rows(tmp_path / "cost.jsonl", [row for row in crossing() if row.overrides[0] == "model.num_ops=30"])
    (tmp_path / "claims.yaml").write_text(OTHERS)
    return tmp_path


def write_rows(path, rows):
    write_measurements(path, [Run(row, [], source="") for row in rows])


def pages(folder: Path) -> dict[str, str]:
    written = write_pages(folder, folder / "experiments", folder)
    return {path.relative_to(folder).as_posix(): path.read_text() for path in written}


def test_pages_are_made_of_the_rows_alone(folder):
    texts = pages(folder)
    assert {name for name in texts if not name.endswith(".svg")} == {
        "chain.md", "chain/settings.csv", "cost.md", "cost/settings.csv", "README.md", "claims.md",
    }  # fmt: skip
    assert "chain/claim0.svg" in texts
    assert pages(folder) == texts
    (folder / "about.md").write_text("On a quiet host.\n")
    assert pages(folder)["README.md"] == texts["README.md"].replace("# Studies\n", "# Studies\n\nOn a quiet host.\n", 1)


def test_a_page_answers_in_a_sentence_and_folds_the_rest(folder):
    page = pages(folder)["chain.md"]
    title, answer, why, _, plot = page.split("\n\n")[:5]
    assert title == "# Is a chain faster?"
    assert answer.startswith(
        "**T3 says: Slower at 1, faster at 30. Measured: held in direction only in all.** Speed of "
    )
    assert why == "Launches take longest."
    assert plot.endswith("(chain/plot0.svg)")
    shown, *folded = page.split('<details markdown="1"><summary>')
    assert [text.partition("<")[0] for text in folded] == ["More plots", "All that was measured"]  # rows without graphs
    assert RULE in shown
    assert "- Not measured: forward only: no time." in shown
    assert "- What the claims are judged by: T3: data.batch\\_size=8." in shown
    assert "1.20x \\[1.20, 1.20\\] at 10; " in shown  # a comparison that nobody claimed
    assert "| eager |" not in shown
    assert folded[1].count("| eager | 1.00x |") == len(OPS)


def test_a_page_begins_with_the_answer_that_stands_beside_its_rows(folder):
    before = pages(folder)
    (folder / "answers.yaml").write_text(ANSWERS)
    texts = pages(folder)
    title, answer, finding, why = texts["chain.md"].split("\n\n")[:4]
    assert answer == "**From 10 on, with \\[brackets\\].**"
    assert finding == before["chain.md"].split("\n\n")[1].replace("**", "")
    assert (title, why) == ("# Is a chain faster?", "Launches take longest.")
    assert texts["cost.md"] == before["cost.md"]
    assert "- [Is a chain faster?](chain.md) From 10 on, with \\[brackets\\].\n" in texts["README.md"]
    assert not any("Nobody knows" in text for text in texts.values())  # a study without rows


@pytest.mark.parametrize("text", ["- {study: chain}", "- {study: chain, answer: [1, 2]}", "- {chain: From 10 on.}"])
def test_an_incomplete_answer_names_its_file(folder, text):
    (folder / "answers.yaml").write_text(text)
    with pytest.raises(ValueError, match=r"answers\.yaml: "):
        pages(folder)


def test_a_comparison_of_several_claims_is_drawn_once(folder):
    once = pages(folder)["chain/plot3.svg"]
    (folder / "experiments" / "chain.yaml").write_text(CHAIN.replace("  claims:\n", f"  claims:\n{AGAIN}"))
    texts = pages(folder)
    assert texts["chain/plot3.svg"] == once  # with the ratio that the other claim's source published
    assert "chain/claim1.svg" in texts  # each claim has a small plot


def test_a_claim_stands_beside_what_was_published_and_measured(folder):
    page = pages(folder)["chain.md"]
    first, second, third = [line for line in page.splitlines() if line.startswith("| ")][2:5]
    assert first.startswith(
        "| T3: Slower at 1, faster at 30. | Speed of default, dynamic=false over eager (model.num\\_o"
    )
    assert (
        "| 0.35 to 5.32<br>37.67 us against 13.32 us: 0.35x | 0.60x \\[0.60, 0.60\\] ‡ (2.002 ms against 1.201 ms) |"
        in first
    )
    assert first.endswith("| held in direction only |")
    assert second.startswith("|  | ")
    assert third == "| T2: Newer is faster. |  | 68 -\\> 65 ms | Python 3.14 is not here. | not measured |"
    assert "‡ of other work than the source's" in page
    assert "†" not in page
    write_rows(folder / "chain.jsonl", [replace(row, batch_size=8, beside_stopped_jobs=True) for row in crossing()])
    page = pages(folder)["chain.md"]
    assert "0.60x \\[0.60, 0.60\\] † (2.002 ms against 1.201 ms) |" in page
    assert "‡" not in page
    assert "† measured while other jobs on the device were [stopped](stopped_jobs.md)." in page
    assert "- 27 of 27 runs were measured beside [stopped jobs](stopped_jobs.md)" in page
    assert "| runs | beside stopped jobs |" in page
    assert page.count("| 3 | 3 of 3 |") == len(crossing()) / 3


def test_the_index_has_a_line_for_each_claim_and_each_question(folder):
    index = pages(folder)["README.md"]
    claimed, questions, unmeasured = index.split("\n## ")[1:]
    lines = [line.split(" | ") for line in claimed.splitlines() if line.startswith("| T")]
    assert [line[0] for line in lines] == ["| T3", "| T4"]
    chain, print_call = lines
    assert chain[1].startswith("[Slower at 1, faster at 30.](chain.md)<br><sub>Speed of default, dynamic=false over ")
    assert chain[2] == "0.35 to 5.32<br>37.67 us against 13.32 us: 0.35x<br>42.36 us against 225.63 us: 5.33x"
    assert chain[-2:] == ["![](chain/claim0.svg)", "**held in direction only in all** |"]
    assert print_call[1] == "[A print breaks the graph.](../x/y.md)"
    assert index.count("1 x NVIDIA H100 80GB HBM3, torch") == 1
    assert "- [Is a chain faster?](chain.md) Speed of default, dynamic=true over eager: 0.48x" in questions
    assert "- [What does it cost?](cost.md) Compile time of dynamic=true over dynamic=false" in questions
    assert unmeasured.splitlines()[2:] == [
        "- T2: Newer is faster. (Python 3.14 is not here.)",
        "- T4: Two streams help. (no time.)",
        "- [chain](chain.md), forward only: no time",
        "- What does it later? (no rows yet; `make studies STUDIES=later` measures it)",
    ]


def test_a_page_shows_the_claims_that_it_is_the_evidence_for(folder):
    other = "- {source: T9, claim: It is flat., verdict: held, measured: 0.1 us more, command: make x, page: chain.md}"
    Path(folder, "claims.yaml").write_text(other)
    texts = pages(folder)
    assert "| T9: It is flat. |  |  | 0.1 us more | held |" in texts["chain.md"]
    assert "T9" not in texts["cost.md"]


def test_each_figure_has_its_command_verdict_and_page(folder):
    write_rows(folder / "chain.jsonl", [row for row in crossing() if row.overrides[0] != "model.num_ops=30"])
    page = pages(folder)["claims.md"]
    assert re.findall("^## (.*)", page, re.MULTILINE) == ["T2", "T3", "T4"]
    figures = [line.strip("| ").split(" | ")[-2:] for line in page.splitlines() if line.startswith("| ")]
    assert [figure for figure in figures if figure[1].endswith("<br>[chain](chain.md)")] == [
        ["not measured", "-<br>[chain](chain.md)"],
        ["held in direction only", "`python train.py -m experiment=studies/crossing_point`<br>[chain](chain.md)"],
        ["not measured", "`make studies STUDIES=chain`<br>[chain](chain.md)"],
    ]
    assert ["held", "`make test`<br>[y.md](../x/y.md)"] in figures
    assert ["not measured", "-"] in figures


def test_a_study_compares_rows_of_each_schema_version_among_themselves(folder):
    old = [replace(row, schema_version=2, run_id=f"old-{row.run_id}", step_time_ms_p50=9.0) for row in crossing()]
    write_rows(folder / "chain.jsonl", [*old, *crossing()])
    page = pages(folder)["chain.md"]
    assert "schema\\_version=2: 1.00x at model.num\\_ops=1; " in page
    assert "schema\\_version=3: 0.48x \\[0.48, 0.48\\] at model.num\\_ops=1; " in page
    assert page.count("Not compared with version 3: 9 runs of schema version 2 (since version 3 ") == len(OPS)
    new_eager = [row for row in crossing() if row.compile_mode == "eager"]
    old_compiled = [row for row in old if row.compile_mode != "eager"]
    write_rows(folder / "chain.jsonl", [*new_eager, *old_compiled])
    page = pages(folder)["chain.md"]
    assert "Speed of default, dynamic=true over eager: not measured." in page
    assert "Not measured here." in page
    assert page.count("Not compared with version 3: 6 runs of schema version 2 (since version 3 ") == len(OPS)


@pytest.mark.parametrize(
    ("column", "plots"),
    [("compile_time_s", ["Speed-up over eager", "Compile time"]), ("null", ["Speed-up over eager"])],
)
def test_what_compiling_went_into_is_drawn_where_a_study_asks_what_it_costs(folder, column, plots):
    (folder / "experiments" / "cost.yaml").write_text(OWN.replace("COLUMN", column))
    rows = [replace(row, compile_forward_s=row.compile_time_s) for row in crossing()]
    write_rows(folder / "cost.jsonl", [row for row in rows if row.overrides[0] == "model.num_ops=30"])
    texts = pages(folder)
    assert re.findall(r"!\[(.*)\]", texts["cost.md"]) == plots
    assert re.findall(">(default.*?|eager)</text>", texts["cost/plot0.svg"]) == [
        "default, dynamic=false",
        "default, dynamic=true",
    ]  # the fastest first, without eager itself


def test_the_stages_of_a_diagnosis_beside_the_rows_are_on_the_page(folder):
    write_rows(folder / "cost.jsonl", [ops_row(1, 2.0, 0, compile_mode="eager")])
    stages = {"eager": {"capture": 0.25}, "inductor": {"capture": 0.5, "lowering": 1.5}}
    diagnosis = Diagnosis("op_chain", "synthetic", 64, "default", "32-true", ["model.num_ops=1"], {}, [], [], stages)
    write_diagnosis(folder / "cost-diagnosis.json", diagnosis)
    page = pages(folder)["cost.md"]
    assert "| compile, s | capture | lowering | total |" in page
    assert "| inductor | 0.50 | 1.50 | 2.00 |" in page
    (folder / "cost-diagnosis2.json").write_text("{}")
    with pytest.raises(ValueError, match=r"diagnosis2\.json is not a diagnosis"):
        pages(folder)


def test_a_claim_about_fractions_has_a_small_plot_of_both_sides(folder):
    (folder / "experiments" / "deadlines.yaml").write_text(DEADLINES)
    rows = []
    for fallback, miss_frac in ((None, 0.5), (["model=simple_net"], 0.25)):
        facts = {"compile_mode": "eager", "kind": "forward", "fallback": fallback, "deadline_miss_frac": miss_frac}
        rows += [ops_row(1, 2.0, repeat, **facts) for repeat in range(3)]
    write_rows(folder / "deadlines.jsonl", rows)
    texts = pages(folder)
    assert "| ![](deadlines/claim0.svg) | **held** |" in texts["README.md"]
    svg = ElementTree.fromstring(texts["deadlines/claim0.svg"])
    assert svg.attrib["aria-label"] == (
        "Measured: Missed deadlines with fallback!=null and with fallback=null 25.0 % and 50.0 %"
    )
    labels = [text.text for text in svg.iter("{http://www.w3.org/2000/svg}text")]
    assert labels == ["0", "50", "100"]


@pytest.mark.parametrize(("name", "width"), [("chain/plot0.svg", "340"), ("chain/claim0.svg", "160")])
def test_a_plot_stands_alone_with_its_colours(folder, name, width):
    svg = ElementTree.fromstring(pages(folder)[name])
    space = "{http://www.w3.org/2000/svg}"
    assert (svg.tag, svg.attrib["width"]) == (f"{space}svg", width)
    assert "--ink:" in (svg.findtext(f"{space}style") or "")
    assert "default, dynamic=false" in svg.attrib["aria-label"]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            "- {source: T4, claim: So., verdict: perhaps, measured: x}",
            "verdict: perhaps: expected one of held, held in d",
        ),
        ("- {source: T4, claim: So., measured: x}", ".*missing mandatory value: verdict"),
        ("- {source: T4, figure: 3}", "Key 'figure' not in 'OtherClaim'"),
    ],
)
def test_an_incomplete_claim_names_its_file(folder, text, problem):
    (folder / "claims.yaml").write_text(text)
    with pytest.raises(ValueError, match=rf"claims\.yaml: {problem}"):
        pages(folder)
