"""Each known defect is found with its line and its remedy, which removes it; clean networks have no findings."""

import re
import sys

import pytest
import torch

from tests import defects
from tests.diagnosis.conftest import FILE, SOURCE, line_of, marked_line, with_shorter_batches
from trainkit.config.errors import ConfigError
from trainkit.diagnosis.diagnose import examine
from trainkit.diagnosis.trial import build_subject
from trainkit.report.diagnosis_labels import finding_lines

FIXED = [name for name in vars(defects) if name.endswith("Fixed")]
DEFECTS = [name.removesuffix("Fixed") for name in FIXED]
CLEAN = [name for name in vars(defects) if name.startswith("Clean")]
WITHOUT_CUDA_GRAPHS = ("input that is written to",)  # nothing to find in mode default
# As a whole, and from the defect on; the bytecode of a while loop ends in a jump back from Python 3.12 on.
AFTER = ["ItemInTry", "Locked", "RandomRounds", "Recurrent"]
LEFT_TO_PYTHON = (["BranchInLoop", "Scripted"], AFTER + ["While"] * (sys.version_info >= (3, 12)))
RECOMPILING = (
    "attribute counter",
    "number in an attribute that changes",
    "list, tuple, dict or set that changes",
    "argument or global number that changes",
    "attribute that changes",
    "dict that grows",
)

REPEATED = ("random number that is drawn once",)
RAISES = "eager runs, the compiled network raises TypeError: only 0-dimensional arrays can be converted .*; at "


def test_there_are_enough_of_each():
    assert len(DEFECTS) >= 12
    assert len(CLEAN) >= 6


@pytest.mark.parametrize("name", [name for name in DEFECTS if marked_line(name)[1] not in WITHOUT_CUDA_GRAPHS])
def test_a_defect_is_named_by_its_line_and_its_remedy(name, subject_of):
    line, cause = marked_line(name)
    diagnosis = examine(subject_of(name))
    findings = [f for f in diagnosis.findings if f.cause != "value that a graph break brought back"]
    assert {(f.file, f.line, f.cause) for f in findings} == {(FILE, line, cause)}, diagnosis.findings
    kind = "recompile" if cause in RECOMPILING else "wrong result" if cause in REPEATED else "graph break"
    assert {f.kind for f in findings} == {kind}
    assert all(f.code == SOURCE[line - 1].strip() for f in findings)
    left = [{f.uncompiled for f in findings}, {f.uncompiled_after for f in findings}]
    assert left == [{"forward" if name in whole else None} for whole in LEFT_TO_PYTHON], diagnosis.findings
    assert [phase.error for phase in diagnosis.phases] == [None, None]


def test_a_condition_on_a_size_is_named_by_its_line_and_is_not_to_be_opened_again(subject_of):
    diagnosis = examine(with_shorter_batches(subject_of("ConditionOnSize", "compile.dynamic=true")))
    (finding,) = diagnosis.findings
    assert (finding.kind, finding.cause) == ("recompile", "size that the network fixes")
    assert (finding.file, finding.code.endswith("# FIXED")) == (FILE, True)


def test_the_line_that_a_backend_fails_on_is_named(subject_of):
    diagnosis = examine(subject_of("WritesByIndex", "compile.backend=aot_eager"))
    (finding,) = diagnosis.findings
    assert (finding.cause, finding.file) == ("line that the backend fails on", FILE)
    assert finding.code.endswith("# REFUSED")
    assert finding.uncompiled == "forward"


@pytest.mark.parametrize("name", [*FIXED, *CLEAN])
def test_the_remedy_and_a_clean_network_have_nothing_to_find(name, subject_of):
    diagnosis = examine(subject_of(name))
    assert diagnosis.findings == []
    assert [phase.num_graphs for phase in diagnosis.phases] == [1, 1]


def test_a_packed_sequence_is_named_and_the_padded_one_is_one_graph_with_the_same_outputs(subject_of):
    packed, padded = subject_of("Packed"), subject_of("Padded")
    named = {(f.cause, f.code) for f in examine(packed).findings if f.line == line_of("# PACKED")}
    assert named == {("packed sequence", SOURCE[line_of("# PACKED") - 1].strip())}
    with torch._dynamo.config.patch(allow_rnn=True):  # as the remedy of a recurrent layer has it
        diagnosis = examine(padded)
    assert ([phase.num_graphs for phase in diagnosis.phases], diagnosis.findings) == ([1, 1], [])
    padded.net.load_state_dict(packed.net.state_dict())
    (images, _), *_ = packed.batches
    images = packed.prepare(images)
    torch.testing.assert_close(padded.net(images), packed.net(images))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("name", [name for name in DEFECTS if marked_line(name)[1] in WITHOUT_CUDA_GRAPHS])
def test_what_keeps_cuda_graphs_away_is_named_by_its_line_and_its_remedy(name, subject_of):
    overrides = ("compile.backend=inductor", "compile.mode=reduce-overhead", "trainer.accelerator=gpu")
    line, cause = marked_line(name)
    diagnosis = examine(subject_of(name, *overrides))
    assert {(f.kind, f.file, f.line, f.cause) for f in diagnosis.findings} == {
        ("CUDA graphs skipped", FILE, line, cause)
    }, diagnosis.findings
    assert examine(subject_of(f"{name}Fixed", *overrides)).findings == []


def test_a_network_that_raises_only_when_it_is_compiled_says_so_and_where(subject_of):
    at = f"tests/defects.py:{line_of('# compiled, it raises')}: return logits \\* float.*"
    diagnosis = examine(subject_of("OnlyEager"))
    assert [re.fullmatch(RAISES + at, phase.error) is not None for phase in diagnosis.phases] == [True, True]


@pytest.mark.parametrize(("name", "note"), [("ItemInTry", "from here on"), ("BranchInLoop", "all of forward")])
def test_what_was_not_looked_at_is_said(name, note, subject_of):
    (finding,) = examine(subject_of(name)).findings
    shown = finding_lines(finding, [])["note"]
    assert note in shown
    assert shown.endswith("the code after it was not diagnosed, fix it and diagnose again")


def test_a_network_that_cannot_be_trained_keeps_what_was_found(compose):
    diagnosis = examine(build_subject(compose("model._target_=tests.networks.Raises", "compile.backend=aot_eager")))
    assert [phase.error and phase.error.partition(":")[0] for phase in diagnosis.phases] == [None, "ArithmeticError"]


@pytest.mark.parametrize(
    ("overrides", "num_graphs"),
    [
        (["compile.scope=blocks"], 4),
        (["compile.scope=parts", "compile.parts=[{match: blocks.*},{match: fc, mode: eager}]"], 4),
        (["compile.scope=parts", "compile.parts=[{match: tests.defects.halved}]", "compile.mode=eager"], 2),
    ],
    ids=["blocks", "parts", "a function"],
)
def test_what_is_compiled_by_itself_is_diagnosed_by_itself(overrides, num_graphs, subject_of):
    diagnosis = examine(subject_of("Blocks", *overrides))
    branch = (FILE, SOURCE.index("    if x.sum() > 0:  # in each block") + 1, "tensor branch")
    assert [(f.file, f.line, f.cause) for f in diagnosis.findings] == [branch]
    assert [phase.num_graphs for phase in diagnosis.phases] == [num_graphs] * 2  # once for both blocks


@pytest.mark.parametrize(
    ("name", "code", "cause", "num_operations", "remedy"),
    [
        (
            "Steps",
            "# in each step",
            "steps of one kind",
            2 * 16,
            ["compile.scope=parts", "compile.parts=[{match: cell}]"],
        ),
        ("Layers", "# in each layer", "layers of one kind", 3 * 16, ["compile.scope=blocks"]),
    ],
)
def test_a_loop_that_is_unrolled_is_named_with_its_size(name, code, cause, num_operations, remedy, subject_of):
    diagnosis = examine(subject_of(name))
    (finding,) = diagnosis.findings
    assert (finding.kind, finding.cause, finding.phases) == ("unrolled loop", cause, ["forward", "training"])
    assert (finding.file, finding.line, finding.num_repeats) == (FILE, line_of(code), 16)
    training = diagnosis.phases[1]
    total = sum(size.num_operations for size in training.line_sizes)
    assert finding.operations_frac == pytest.approx(num_operations / training.graph_sizes[0].num_operations)
    assert num_operations < total <= training.graph_sizes[0].num_operations
    assert training.compile_s > 0
    assert examine(subject_of(name, *remedy)).findings == []


def test_torchs_recompile_limit_is_reached_and_said(subject_of):
    diagnosis = examine(subject_of("Counter"))
    assert [(phase.num_graphs, phase.recompile_limit_hit) for phase in diagnosis.phases] == [(8, True)] * 2


def test_a_mark_that_the_network_fixes_is_the_users_to_correct(subject_of):
    with pytest.raises(ConfigError, match=r"^compile\.mark_dynamic, inputs 2: the network fixes it to 8; "):
        examine(subject_of("Clean", "compile.mark_dynamic=[{dim: 2}]"))
