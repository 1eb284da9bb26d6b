"""A diagnosis is read back as it was written, and what is none is one line."""

import json
import re
from dataclasses import asdict, replace

import pytest

from tests.sweeps import diagnosis
from trainkit.diagnosis.findings import Finding, merge_findings, read_diagnoses, read_diagnosis, write_diagnosis


def test_a_diagnosis_is_read_back_as_it_was_written(tmp_path):
    written = diagnosis("\N{SNOWMAN}")
    write_diagnosis(tmp_path / "found.json", written)
    assert read_diagnosis(tmp_path / "found.json") == written


def test_what_a_newer_schema_added_is_left_out(tmp_path):
    known = asdict(diagnosis())
    (tmp_path / "found.json").write_text(json.dumps(known | {"weather": "fine", "phases": [{"name": "x", "new": 1}]}))
    assert [phase.name for phase in read_diagnosis(tmp_path / "found.json").phases] == ["x"]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "Expecting value"),
        ("[]", r"it = \[\]: expected Diagnosis"),
        ('{"phases": []}', "it has no .*findings"),
        ({"model": 3}, "model = 3: expected str"),
        ({"phases": None}, "phases = None: expected list"),
        ({"phases": [3]}, "phases = 3: expected Phase"),
        ({"phases": [{"name": "forward", "gain": 2}]}, "gain = 2: expected Estimate"),
        ({"phases": [{"name": "a", "gain": {"value": float("nan"), "low": 1, "high": 1}}]}, "value = nan: expected"),
        ({"findings": [{"kind": "graph break"}]}, "findings has no cause, reason, remedy, why"),
        ({"stages": {"eager": {"capture": "1 s"}}}, "capture = 1 s: expected float"),
    ],
)
def test_a_file_that_is_no_diagnosis_is_one_line_with_its_name(text, complaint, tmp_path):
    if isinstance(text, dict):
        text = json.dumps(asdict(diagnosis()) | text)
    write_diagnosis(tmp_path / "diagnosis.json", diagnosis())
    (tmp_path / "diagnosis-b.json").write_text(text)
    read, (line,) = read_diagnoses(tmp_path)
    assert read == [diagnosis()]
    assert re.fullmatch(rf".*diagnosis-b\.json is not a diagnosis: {complaint}.*", line)  # . is no line break


def test_a_skip_without_a_line_is_the_one_of_its_cause_that_has_one():
    skip = Finding("CUDA graphs skipped", "input that is written to", "why", "remedy", "reason")
    placed = replace(skip, file="net.py", line=9, code="x += 1", phases=["forward"])
    other = replace(skip, cause="tensor on the CPU", phases=["training"])
    findings = merge_findings([placed, replace(skip, phases=["training"]), other])
    assert findings == [replace(placed, phases=["forward", "training"]), other]


def test_a_skip_without_a_line_of_more_tensors_stays_a_finding_of_its_own():
    skip = Finding("CUDA graphs skipped", "input that is written to", "why", "remedy", "mutated inputs (1 instances)")
    reason = f"{skip.reason}. Found from : x"
    placed = replace(skip, file="net.py", line=9, code="x += 1", phases=["forward"], reason=reason)
    more = replace(skip, reason="mutated inputs (2 instances)", phases=["training"])
    assert merge_findings([placed, more]) == [placed, more]
    merged = merge_findings([placed, replace(skip, phases=["training"])])
    assert merged == [replace(placed, phases=["forward", "training"])]
