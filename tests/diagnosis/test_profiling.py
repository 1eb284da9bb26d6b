"""Profiles of steady steps, and traces of them."""

import json

from trainkit.compiler import graphs
from trainkit.diagnosis.findings import Phase
from trainkit.diagnosis.profiling import profile_round, write_trace
from trainkit.diagnosis.trial import OPTIMIZER, STEP, Trial

FORWARD, FAILED = Phase("forward"), Phase("training", error="TypeError")


def test_a_trace_is_of_forward_where_training_fails_and_of_nothing_where_both_do(subject_of, tmp_path, caplog):
    caplog.set_level("INFO", "trainkit")
    file = tmp_path / "trace.json"
    write_trace(subject_of("Clean"), [FORWARD, FAILED], file)
    names = [event.get("name") for event in json.loads(file.read_text())["traceEvents"]]
    assert (names.count(STEP), names.count(OPTIMIZER), names.count(graphs.COMPILED_GRAPH)) == (5, 0, 5)
    assert caplog.messages[-1] == f"forward: 5 steady steps traced into {file}"
    write_trace(subject_of("Clean"), [FAILED], tmp_path / "none.json")
    assert caplog.messages[-1] == "trace: none, no phase runs"
    write_trace(subject_of("OnlyEager"), [FORWARD], tmp_path / "none.json")
    assert caplog.messages[-1].startswith("trace: none of forward: TypeError: ")
    assert not (tmp_path / "none.json").exists()


def test_kernels_are_unknown_on_a_cpu(subject_of):
    subject = subject_of("Clean")
    with Trial(subject, "training", graphs.watched(subject.config.compile)).running() as trial:
        trial.warm_up()
        profiled = profile_round(trial)
    assert 0 < profiled.compiled_frac < 1
    assert (profiled.kernels_ms, profiled.num_kernels, profiled.num_launches) == (None, None, None)
