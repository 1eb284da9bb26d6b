"""The findings of a phase: their lines, shapes and remedies."""

from tests import defects
from tests.diagnosis.conftest import FILE, SOURCE, marked_line, with_shorter_batches
from trainkit.diagnosis import trial
from trainkit.diagnosis.diagnose import examine


def test_what_a_library_does_below_a_break_goes_with_it(subject_of):
    diagnosis = examine(subject_of("BlursBySciPy"))
    own, *below = [f for f in diagnosis.findings if f.cause != "value that a graph break brought back"]
    assert (own.file, own.cause, own.code.endswith("# BREAK")) == (FILE, "NumPy", True)
    assert {f.cause for f in below} == {"code of a library below a graph break"}
    assert all("scipy" in f.file for f in below)


def test_a_reason_that_torch_has_in_no_record_is_heard(subject_of, monkeypatch, needs_compiler):
    from torch._inductor import cudagraph_trees

    reason = (
        f'skipping cudagraphs due to mutated inputs (1 instances). Found from : \n File "{defects.__file__}", line 9'
    )

    def step(self, batch):
        cudagraph_trees.log_cudagraph_skip_and_bump_counter(reason)

    monkeypatch.setattr(trial.Trial, "step", step)
    (finding,) = examine(subject_of("Clean", "compile.backend=inductor", "compile.mode=reduce-overhead")).findings
    assert (finding.kind, finding.cause) == ("CUDA graphs skipped", "input that is written to")
    assert (finding.file, finding.line) == (FILE, 9)


def test_batches_of_other_sizes_are_recompiles_by_shape(subject_of):
    (finding,) = examine(with_shorter_batches(subject_of("Clean", "compile.dynamic=false"))).findings
    assert (finding.kind, finding.cause, finding.num_recompiles) == ("recompile", "shape that changes", 4)
    assert finding.phases == ["forward", "training"]
    assert finding.recompile_shapes == [[[size, 1, 8, 8], [size]] for size in (8, 4)]


def test_a_batch_that_is_not_the_cause_of_a_recompile_is_not_named(subject_of):
    (finding,) = examine(with_shorter_batches(subject_of("Counter", "compile.dynamic=true"))).findings
    assert (finding.cause, finding.recompile_shapes) == ("attribute counter", [])


def test_recompiles_of_a_part_are_in_its_own_forward(subject_of):
    overrides = ("compile.scope=parts", "compile.parts=[{match: blocks.0},{match: fc}]", "compile.dynamic=false")
    findings = examine(with_shorter_batches(subject_of("Blocks", *overrides))).findings
    first = SOURCE.index("class Block(nn.Module):")
    forward = SOURCE.index("    def forward(self, x: Tensor) -> Tensor:", first) + 1
    places = {(f.file, f.line) for f in findings if f.cause == "shape that changes"}
    assert {(FILE, forward), (None, None)} <= places  # the second of fc, which is torch's own
    assert {file for file, _ in places} == {FILE, None}, findings


def test_cuda_graphs_without_a_gpu_are_a_finding(subject_of, needs_compiler):
    diagnosis = examine(subject_of("Clean", "compile.backend=inductor", "compile.mode=reduce-overhead"))
    assert [(f.kind, f.cause) for f in diagnosis.findings] == [("CUDA graphs skipped", "tensor on the CPU")]


def test_a_marked_dimension_is_no_recompile(subject_of):
    marked = [f"{{input: {name}, dim: 0}}" for name in ("inputs", "targets")]
    subject = subject_of("Clean", f"compile.mark_dynamic=[{','.join(marked)}]")
    assert examine(with_shorter_batches(subject)).findings == []


def test_a_value_that_a_break_brought_back_is_placed_at_the_break(subject_of):
    line, _ = marked_line("Item")  # the value is used in the next line
    used = [f for f in examine(subject_of("Item")).findings if f.cause == "value that a graph break brought back"]
    assert [(f.line, f.code) for f in used] == [(line, SOURCE[line - 1].strip())]


def test_the_recompile_that_the_limit_forbids_has_the_place_of_its_frame(subject_of):
    line, _ = marked_line("Shuffle")
    diagnosis = examine(subject_of("Shuffle"))  # another order in each of ten steps
    assert [phase.recompile_limit_hit for phase in diagnosis.phases] == [True, True]
    assert {(f.file, f.line) for f in diagnosis.findings} == {(FILE, line)}
