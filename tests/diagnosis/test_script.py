"""scripts/diagnose.py prints findings with their lines and remedies; a mistake is one line."""

import json
import re
from collections import Counter

import pytest

from tests import defects, forked
from tests.conftest import ROOT
from tests.diagnosis.conftest import FIRST_CALL, marked_line
from trainkit.compiler import graphs
from trainkit.diagnosis import trial
from trainkit.diagnosis.findings import read_diagnosis


@pytest.fixture
def script(tmp_path):
    """(words, ...) -> `python scripts/diagnose.py words...` run to its end in tmp_path."""

    def started(*words: str):
        return forked.python(ROOT / "scripts" / "diagnose.py", *words, "trainer.accelerator=cpu", cwd=tmp_path)

    return started


def test_the_script_shows_line_and_remedy_and_writes_json_and_code(script, tmp_path):
    words = ("model._target_=tests.defects.TensorBranch", "compile.backend=eager", "--json", "found.json")
    done = script(*words, "--code", "code", "--trace", "trace.json")
    line, _ = marked_line("TensorBranch")
    assert done.returncode == 0
    traced = "training: 5 steady steps traced into trace.json\n"
    for line_on_stderr in done.stderr.replace(traced, "").splitlines():  # the progress, and nothing else
        assert re.match(r"(forward|training): (compiling|measuring|profiling)\b", line_on_stderr)
    assert done.stderr.index(traced) < done.stderr.index(": measuring")  # whatever fails later, it is there
    events = Counter(event.get("name") for event in json.loads((tmp_path / "trace.json").read_text())["traceEvents"])
    assert (events[trial.STEP], events[trial.OPTIMIZER], events[graphs.COMPILED_GRAPH]) == (5, 5, 10)
    assert f"\ntraining: measuring without break 1 of 1 ({defects.__file__}:{line})\n" in done.stderr
    remedy, measurements = done.stdout.index("torch.where"), done.stdout.index("step ms")
    assert remedy < measurements < done.stdout.index("graph break", measurements)
    assert not re.search(r" $", done.stdout, re.MULTILINE)
    assert "eager ms" not in done.stdout  # a backend without code has no gain
    assert "The backend generates no code, so its gain is not measured" in done.stdout
    for text in (f"defects.py:{line}", "if logits.sum() > 0:", "torch.where", "Found: 1 graph break."):
        assert text in done.stdout
    diagnosis = read_diagnosis(tmp_path / "found.json")
    assert [(f.file, f.line, f.cost_unknown) for f in diagnosis.findings] == [(defects.__file__, line, None)]
    assert (tmp_path / "code" / "training" / "graph_0.txt").read_text().startswith(f"# Made of:\n{FIRST_CALL}\n")
    assert {path.name for path in tmp_path.iterdir()} == {"found.json", "trace.json", "code"}


def test_without_measuring_the_findings_are_all_and_no_step_is_timed(script, tmp_path):
    words = ("model._target_=tests.defects.TensorBranch", "compile.backend=eager", "--json", "found.json")
    done = script(*words, "--no-measure")
    assert done.returncode == 0
    assert re.sub(r"(forward|training): compiling .*\n", "", done.stderr) == ""
    assert "torch.where" in done.stdout
    assert not re.search(r"step ms|Medians|cost", done.stdout)
    diagnosis = read_diagnosis(tmp_path / "found.json")
    assert [(phase.num_graphs, phase.step_time_ms) for phase in diagnosis.phases] == [(2, None)] * 2
    assert [(finding.cost_ms, finding.cost_unknown) for finding in diagnosis.findings] == [(None, None)]


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["compile.mode=foo"], r"compile\.mode = foo: expected one of eager, .*"),
        (["model.widht=3"], r"model\.widht = 3: no such setting; did you mean model\.width\?"),
        (["-m"], r"-m: a diagnosis is of one network with one setting; leave it out, and diagnose each"),
        (["-m", "compile.mode=foo"], r"-m: a diagnosis is of .*\ncompile\.mode = foo: expected .*"),
        (["--json", "nowhere/found.json"], r"--json = nowhere/found\.json: expected a file in an existing folder"),
        (["--trace", "nowhere/trace.json"], r"--trace = nowhere/trace\.json: expected a file in an existing folder"),
        (["--code", str(ROOT / "README.md")], r"--code = .*README\.md: File exists; give a folder"),
    ],
)
def test_a_mistake_is_one_line_and_exit_status_2(words, line, script):
    done = script(*words)
    assert done.returncode == 2
    assert re.fullmatch(line, done.stderr.strip())
