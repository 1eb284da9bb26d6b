"""Every known defect is named by its line and its remedy, which takes it away; where there is none, none is found."""

import logging
import re
import sys
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tests import defects, forked
from tests.conftest import ROOT
from trainkit.compiler import facts
from trainkit.compiler.errors import first_line
from trainkit.config.errors import ConfigError
from trainkit.diagnosis import break_costs, output, trial
from trainkit.diagnosis.diagnose import diagnose, look, stages, stages_of, write_code
from trainkit.diagnosis.findings import Finding, Phase, merged, read_diagnosis
from trainkit.diagnosis.trial import subject
from trainkit.report.diagnosis_labels import finding_lines
from trainkit.stats import Estimate

FILE = "tests/defects.py"
SOURCE = Path(defects.__file__).read_text().splitlines()
MENDED = [name for name in vars(defects) if name.endswith("Mended")]
DEFECTS = [name.removesuffix("Mended") for name in MENDED]
CLEAN = [name for name in vars(defects) if name.startswith("Clean")]
WITHOUT_CUDA_GRAPHS = ("input that is written to",)  # nothing to find in mode default
# As a whole, and from the defect on; the bytecode of a while loop ends in a jump back from Python 3.12 on.
AFTER = ["ItemInTry", "Locked", "RandomRounds", "Recurrent"]
LEFT_TO_PYTHON = (["BranchInLoop", "Scripted"], AFTER + ["While"] * (sys.version_info >= (3, 12)))
CALL = "return self.fc(images.flatten(1))"  # where all of them begin
FC = f"# {defects.__file__}:{SOURCE.index(f'        {CALL}') + 1}: {CALL}"
RECOMPILING = (
    "attribute counter",
    "number in an attribute that changes",
    "list, tuple, dict or set that changes",
    "argument or global number that changes",
    "attribute that changes",
    "dict that grows",
)

REPEATED = ("random number that is drawn once",)


def of(compose, name: str, *overrides: str):
    words = (f"model._target_=tests.defects.{name}", "compile.backend=eager", "data.batch_size=16", *overrides)
    return subject(compose(*words))


def cut(subject):
    """The same with batches of 16, 8 and 4 samples."""
    sizes = zip((16, 8, 4), subject.batches, strict=False)
    return replace(subject, batches=[(inputs[:size], targets[:size]) for size, (inputs, targets) in sizes])


def defect(name: str) -> tuple[int, str]:
    """The marked line of a class, and the cause that its comment names."""
    first = SOURCE.index(f"class {name}(Classifier):")
    line = next(number for number in range(first, len(SOURCE)) if "  # DEFECT " in SOURCE[number])
    return line + 1, SOURCE[line].partition("  # DEFECT ")[2]


def test_there_are_enough_of_each():
    assert len(DEFECTS) >= 12
    assert len(CLEAN) >= 6


@pytest.mark.parametrize("name", [name for name in DEFECTS if defect(name)[1] not in WITHOUT_CUDA_GRAPHS])
def test_a_defect_is_named_by_its_line_and_its_remedy(name, compose):
    line, cause = defect(name)
    seen = look(of(compose, name))
    found = [f for f in seen.findings if f.cause != "value that a graph break brought back"]
    assert {(f.file, f.line, f.cause) for f in found} == {(FILE, line, cause)}, seen.findings
    kind = "recompile" if cause in RECOMPILING else "wrong result" if cause in REPEATED else "graph break"
    assert {f.kind for f in found} == {kind}
    assert all(f.code == SOURCE[line - 1].strip() for f in found)
    left = [{f.uncompiled for f in found}, {f.uncompiled_after for f in found}]
    assert left == [{"forward" if name in whole else None} for whole in LEFT_TO_PYTHON], seen.findings
    assert [phase.error for phase in seen.phases] == [None, None]


def test_a_condition_on_a_size_is_named_by_its_line_and_is_not_to_be_opened_again(compose):
    seen = look(cut(of(compose, "ConditionOnSize", "compile.dynamic=true")))
    (found,) = seen.findings
    assert (found.kind, found.cause) == ("recompile", "size that the network fixes")
    assert (found.file, found.code.endswith("# FIXED")) == (FILE, True)


def test_a_branch_on_a_number_that_is_drawn_once_is_no_tensors(compose):
    seen = look(of(compose, "OwnRandomBranch"))
    assert {(f.kind, f.cause) for f in seen.findings} == {
        ("wrong result", "random number that is drawn once"),
        ("graph break", "random number of Python or NumPy"),
    }
    assert all(f.code.endswith("# DROP") for f in seen.findings)


def test_the_line_that_a_backend_fails_on_is_named(compose):
    seen = look(of(compose, "WritesByIndex", "compile.backend=aot_eager"))
    (found,) = seen.findings
    assert (found.cause, found.file) == ("line that the backend fails on", FILE)
    assert found.code.endswith("# REFUSED")
    assert found.uncompiled == "forward"


def test_what_a_library_does_below_a_break_goes_with_it(compose):
    seen = look(of(compose, "BlursBySciPy"))
    own, *below = [f for f in seen.findings if f.cause != "value that a graph break brought back"]
    assert (own.file, own.cause, own.code.endswith("# BREAK")) == (FILE, "NumPy", True)
    assert {f.cause for f in below} == {"code of a library below a graph break"}
    assert all("scipy" in f.file for f in below)


@pytest.mark.parametrize("name", [*MENDED, *CLEAN])
def test_the_remedy_and_a_clean_network_have_nothing_to_find(name, compose):
    seen = look(of(compose, name))
    assert seen.findings == []
    assert [phase.num_graphs for phase in seen.phases] == [1, 1]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("name", [name for name in DEFECTS if defect(name)[1] in WITHOUT_CUDA_GRAPHS])
def test_what_keeps_cuda_graphs_away_is_named_by_its_line_and_its_remedy(name, compose):
    words = ("compile.backend=inductor", "compile.mode=reduce-overhead", "trainer.accelerator=gpu")
    line, cause = defect(name)
    seen = look(of(compose, name, *words))
    assert {(f.kind, f.file, f.line, f.cause) for f in seen.findings} == {("CUDA graphs skipped", FILE, line, cause)}, (
        seen.findings
    )
    assert look(of(compose, f"{name}Mended", *words)).findings == []


def test_a_reason_that_torch_has_in_no_record_is_heard(compose, monkeypatch, needs_compiler):
    from torch._inductor import cudagraph_trees

    reason = (
        f'skipping cudagraphs due to mutated inputs (1 instances). Found from : \n File "{defects.__file__}", line 9'
    )

    def step(self, batch):
        cudagraph_trees.log_cudagraph_skip_and_bump_counter(reason)

    monkeypatch.setattr(trial.Trial, "step", step)
    (found,) = look(of(compose, "Clean", "compile.backend=inductor", "compile.mode=reduce-overhead")).findings
    assert (found.kind, found.cause) == ("CUDA graphs skipped", "input that is written to")
    assert (found.file, found.line) == (FILE, 9)


def test_what_a_network_says_is_left_out_and_what_is_found_stays(compose, capsys, caplog, monkeypatch):
    one = of(compose, "Talks")
    own = logging.StreamHandler(sys.stderr)  # as a script sets it up where it begins
    monkeypatch.setattr(defects.logger, "handlers", [own])
    caplog.set_level("INFO", "trainkit")
    output._say_so.cache_clear()
    with monkeypatch.context() as patched:
        patched.setattr(trial, "silenced", nullcontext)
        heard = look(one)
    loud = capsys.readouterr()
    assert min(loud.out.count("loudly"), caplog.messages.count("loudly")) >= 20 < loud.err.count("loudly")
    caplog.clear()
    assert look(one) == heard
    assert len(heard.findings) == 4
    assert capsys.readouterr() == ("", "")
    assert "loudly" not in caplog.messages
    assert caplog.messages.count("what the network prints, warns and logs is left out") == 1


def line_of(code: str) -> int:
    (line,) = (number for number, text in enumerate(SOURCE, 1) if text.endswith(code))
    return line


RAISES = "eager runs, the compiled network raises TypeError: only 0-dimensional arrays can be converted .*; at "


def test_a_network_that_raises_only_when_it_is_compiled_says_so_and_where(compose):
    at = f"tests/defects.py:{line_of('# compiled, it raises')}: return logits \\* float.*"
    seen = look(of(compose, "OnlyEager"))
    assert [re.fullmatch(RAISES + at, phase.error) is not None for phase in seen.phases] == [True, True]


def test_a_network_that_raises_only_without_a_break_says_so_and_where(compose):
    one = of(compose, "OnlyEagerWithoutBreak")
    broken = (defects.__file__, line_of("# left out, the rest is compiled"))
    variant = break_costs.Variant("without it", one.config.compile, broken)
    variant.measure(one, "forward")
    at = f"tests/defects.py:{line_of('# compiled without the break, it raises')}: .*"
    assert re.fullmatch(f"without it: {RAISES}{at}", variant.failed)


def test_of_a_network_that_fails_the_code_up_to_there_is_written_and_no_stages(compose, tmp_path, caplog, monkeypatch):
    caplog.set_level("INFO", "trainkit")
    monkeypatch.setattr("trainkit.diagnosis.diagnose.STAGE_BACKENDS", ("eager",))
    one = of(compose, "OnlyEager")
    written = write_code(one, tmp_path)
    names = ["index.txt", "forward/graph_0.txt", "training/graph_0.txt"]
    assert [str(path.relative_to(tmp_path)) for path in written] == names
    assert sum("its graphs are those up to TypeError: " in message for message in caplog.messages) == 2
    assert stages(one.config) == {}
    assert "stages: none of the backend eager: TypeError: " in caplog.text


def test_a_skip_without_a_line_is_the_one_of_its_cause_that_has_one():
    skip = Finding("CUDA graphs skipped", "input that is written to", "why", "remedy", "reason")
    placed = replace(skip, file=FILE, line=9, code="x += 1", phases=["forward"])
    other = replace(skip, cause="tensor on the CPU", phases=["training"])
    found = merged([placed, replace(skip, phases=["training"]), other])
    assert found == [replace(placed, phases=["forward", "training"]), other]


def test_a_skip_without_a_line_of_more_tensors_stays_a_finding_of_its_own():
    one = Finding("CUDA graphs skipped", "input that is written to", "why", "remedy", "mutated inputs (1 instances)")
    placed = replace(one, file=FILE, line=9, code="x += 1", phases=["forward"], reason=f"{one.reason}. Found from : x")
    more = replace(one, reason="mutated inputs (2 instances)", phases=["training"])
    assert merged([placed, more]) == [placed, more]
    assert merged([placed, replace(one, phases=["training"])]) == [replace(placed, phases=["forward", "training"])]


def test_batches_of_other_sizes_are_recompiles_by_shape(compose):
    (found,) = look(cut(of(compose, "Clean", "compile.dynamic=false"))).findings
    assert (found.kind, found.cause, found.num_recompiles) == ("recompile", "shape that changes", 4)
    assert found.phases == ["forward", "training"]
    assert found.recompile_shapes == [[[size, 1, 8, 8], [size]] for size in (8, 4)]


def test_a_batch_that_is_not_the_cause_of_a_recompile_is_not_named(compose):
    (found,) = look(cut(of(compose, "Counter", "compile.dynamic=true"))).findings
    assert (found.cause, found.recompile_shapes) == ("attribute counter", [])


@pytest.mark.parametrize(("name", "note"), [("ItemInTry", "from here on"), ("BranchInLoop", "all of forward")])
def test_what_was_not_looked_at_is_said(name, note, compose):
    (found,) = look(of(compose, name)).findings
    said = finding_lines(found, [])["note"]
    assert note in said
    assert said.endswith("the code after it was not diagnosed, fix it and diagnose again")


def test_recompiles_of_a_part_are_in_its_own_forward(compose):
    words = ("compile.scope=parts", "compile.parts=[{match: blocks.0},{match: fc}]", "compile.dynamic=false")
    found = look(cut(of(compose, "Blocks", *words))).findings
    first = SOURCE.index("class Block(nn.Module):")
    forward = SOURCE.index("    def forward(self, x: Tensor) -> Tensor:", first) + 1
    places = {(f.file, f.line) for f in found if f.cause == "shape that changes"}
    assert {(FILE, forward), (None, None)} <= places  # the second of fc, which is torch's own
    assert {file for file, _ in places} == {FILE, None}, found


def test_cuda_graphs_without_a_gpu_are_a_finding(compose, needs_compiler):
    seen = look(of(compose, "Clean", "compile.backend=inductor", "compile.mode=reduce-overhead"))
    assert [(f.kind, f.cause) for f in seen.findings] == [("CUDA graphs skipped", "tensor on the CPU")]


def test_a_network_that_cannot_be_trained_keeps_what_was_found(compose):
    seen = look(subject(compose("model._target_=tests.networks.Raises", "compile.backend=aot_eager")))
    assert [phase.error and phase.error.partition(":")[0] for phase in seen.phases] == [None, "ArithmeticError"]


@pytest.mark.parametrize(
    ("words", "num_graphs"),
    [
        (["compile.scope=blocks"], 4),
        (["compile.scope=parts", "compile.parts=[{match: blocks.*},{match: fc, mode: eager}]"], 4),
        (["compile.scope=parts", "compile.parts=[{match: tests.defects.halved}]", "compile.mode=eager"], 2),
    ],
    ids=["blocks", "parts", "a function"],
)
def test_what_is_compiled_by_itself_is_diagnosed_by_itself(words, num_graphs, compose):
    seen = look(of(compose, "Blocks", *words))
    branch = (FILE, SOURCE.index("    if x.sum() > 0:  # in each block") + 1, "tensor branch")
    assert [(f.file, f.line, f.cause) for f in seen.findings] == [branch]
    assert [phase.num_graphs for phase in seen.phases] == [num_graphs] * 2  # once for both blocks


def test_of_a_part_that_is_torchs_own_no_line_is_the_users(compose, tmp_path):
    _, graph, *_ = write_code(of(compose, "Blocks", "compile.scope=parts", "compile.parts=[{match: fc}]"), tmp_path)
    assert graph.read_text().startswith("# Made of:\n\n")


def test_a_marked_dimension_is_no_recompile(compose):
    marked = [f"{{input: {name}, dim: 0}}" for name in ("inputs", "targets")]
    one = of(compose, "Clean", f"compile.mark_dynamic=[{','.join(marked)}]")
    assert look(cut(one)).findings == []


def test_a_value_that_a_break_brought_back_is_placed_at_the_break(compose):
    line, _ = defect("Item")  # the value is used in the next line
    used = [f for f in look(of(compose, "Item")).findings if f.cause == "value that a graph break brought back"]
    assert [(f.line, f.code) for f in used] == [(line, SOURCE[line - 1].strip())]


def test_an_error_of_torchs_says_where():
    hint = "Set TORCHDYNAMO_VERBOSE=1 for the internal stack trace"
    said = f'NotImplementedError: \n\nfrom user code:\n   File "net.py", line 9, in forward\n    y = f(x)\n\n{hint}\n'
    expected = 'RuntimeError: NotImplementedError: from user code: File "net.py", line 9, in forward'
    assert first_line(RuntimeError(said)) == expected
    assert first_line(RuntimeError(f"backend='x' raised:\nKeyError: \n\n{hint}\n")).endswith("raised: KeyError:")
    assert first_line(RuntimeError("of one line\nand another")) == "RuntimeError: of one line"
    assert first_line(KeyError()) == "KeyError"


def test_torchs_recompile_limit_is_reached_and_said(compose):
    seen = look(of(compose, "Counter"))
    assert [(phase.num_graphs, phase.recompile_limit_hit) for phase in seen.phases] == [(8, True)] * 2


def test_the_recompile_that_the_limit_forbids_has_the_place_of_its_frame(compose):
    line, _ = defect("Shuffle")
    seen = look(of(compose, "Shuffle"))  # another order in each of ten steps
    assert [phase.recompile_limit_hit for phase in seen.phases] == [True, True]
    assert {(f.file, f.line) for f in seen.findings} == {(FILE, line)}


def test_a_mark_that_the_network_fixes_is_the_users_to_correct(compose):
    with pytest.raises(ConfigError, match=r"^compile\.mark_dynamic, inputs 2: the network fixes it to 8; "):
        look(of(compose, "Clean", "compile.mark_dynamic=[{dim: 2}]"))


@pytest.mark.parametrize("fused", ["true", "false"])
def test_a_step_clips_as_training_does(compose, fused):
    words = ("optimizer=sgd", "optimizer.lr=0.5", f"optimizer.fused={fused}", "optimizer.weight_decay=0")
    one = of(compose, "Clean", *words, "trainer.gradient_clip_val=1e-3")
    made = trial.Trial(one, "training", one.config.compile)
    with made.running():
        made.first_step()
    moved = [
        after - before for after, before in zip(made._objective.net.parameters(), one.net.parameters(), strict=True)
    ]
    assert float(torch.nn.utils.get_total_norm(moved)) == pytest.approx(0.5 * 1e-3, rel=1e-3)


def test_costs_and_shares_are_measured_on_copies(compose, caplog):
    caplog.set_level("INFO", "trainkit")
    one = of(compose, "ManyDefects", "compile.backend=aot_eager")
    before = {name: tensor.clone() for name, tensor in one.net.state_dict().items()}
    seen = diagnose(one)
    branch, shape = (finding for finding in seen.findings if finding.kind == "graph break")
    assert (branch.cause, branch.cost_unknown) == ("tensor branch", None)
    assert branch.cost_ms.low < branch.cost_ms.value < branch.cost_ms.high
    assert (shape.cause, shape.cost_ms) == ("data-dependent shape", None)
    assert shape.cost_unknown == "its result is a tensor, or another one each time it runs"
    for phase in seen.phases:
        for measured in (phase.step_time_ms, phase.eager_step_time_ms, phase.gain):
            assert 0 < measured.low < measured.value < measured.high
        assert 0 < phase.compiled_frac.low <= phase.compiled_frac.value <= phase.compiled_frac.high <= 1
    forward, training = (phase.optimizer_frac for phase in seen.phases)
    assert forward.high == 0 < training.low < training.high < 1
    assert all(torch.equal(tensor, before[name]) for name, tensor in one.net.state_dict().items())
    told = [f"training: measuring without break {n} of 2 ({FILE}:{f.line})" for n, f in ((1, branch), (2, shape))]
    assert [message for message in caplog.messages if "without break" in message] == told
    assert {f"{phase.name}: measuring, round 6 of 6" for phase in seen.phases} <= set(caplog.messages)


@pytest.mark.parametrize("words", [[], ["compile.scope=blocks"]], ids=["step", "blocks"])
def test_a_cost_is_the_difference_within_rounds_whatever_drifts(words, compose, monkeypatch):
    monkeypatch.setattr(trial, "NUM_WARMUP", 1)
    as_written, timed = defects.halved.__code__, []

    def step_ms(self, num_steps):
        timed.append(defects.halved.__code__ is not as_written)  # without the branch
        return [100 * ((len(timed) - 1) // 3) + (7 if timed[-1] else 10)]

    monkeypatch.setattr(trial.Trial, "step_ms", step_ms)
    monkeypatch.setattr(break_costs, "_profiled", lambda trial: (0.5, 0.25, 75.0))
    one = of(compose, "Blocks", *words)
    (branch,) = look(one).findings
    phase, found = break_costs.measured(one, Phase("training"), [branch])
    assert (phase.gain, phase.compiled_frac) == (Estimate(1, 1, 1), Estimate(0.5, 0.5, 0.5))
    assert phase.device_busy_frac == Estimate((75 / 210 + 75 / 310) / 2, 75 / 510, 1)  # compiled: 10 ms, 110 ms, ...
    assert timed[:6] == [False, False, True, True, False, False]  # compiled, eager, without it; then backwards
    assert found[id(branch)].cost_ms == Estimate(3, 3, 3)


@pytest.fixture
def script(tmp_path):
    """(words, ...) -> `python scripts/diagnose.py words...` run to its end in tmp_path."""

    def started(*words: str):
        return forked.python(ROOT / "scripts" / "diagnose.py", *words, "trainer.accelerator=cpu", cwd=tmp_path)

    return started


def test_the_script_shows_line_and_remedy_and_writes_json_and_code(script, tmp_path):
    words = ("model._target_=tests.defects.TensorBranch", "compile.backend=eager", "--json", "found.json")
    done = script(*words, "--code", "code")
    line, _ = defect("TensorBranch")
    assert done.returncode == 0
    for said in done.stderr.splitlines():  # what is under way, and nothing else
        assert re.match(r"(forward|training): (compiling|measuring|profiling)\b", said)
    assert f"\ntraining: measuring without break 1 of 1 ({defects.__file__}:{line})\n" in done.stderr
    found, measured = done.stdout.index("torch.where"), done.stdout.index("eager ms")
    assert found < measured < done.stdout.index("graph break", measured)
    assert not re.search(r" $", done.stdout, re.MULTILINE)
    for said in (f"defects.py:{line}", "if logits.sum() > 0:", "torch.where", "Found: 1 graph break."):
        assert said in done.stdout
    found = read_diagnosis(tmp_path / "found.json")
    assert [(f.file, f.line, f.cost_unknown) for f in found.findings] == [(defects.__file__, line, None)]
    assert (tmp_path / "code" / "training" / "graph_0.txt").read_text().startswith(f"# Made of:\n{FC}\n")
    assert {path.name for path in tmp_path.iterdir()} == {"found.json", "code"}


def test_graphs_and_kernels_are_written_with_their_source_lines(compose, tmp_path, needs_compiler):
    written = write_code(of(compose, "TensorBranch", "compile.backend=inductor"), tmp_path)
    names = {str(path.relative_to(tmp_path)) for path in written}
    for number in (0, 1):
        graph = f"training/graph_{number}"
        assert {f"{graph}.txt", f"{graph}_forward.txt", f"{graph}_backward.txt"} <= names
        assert {f"{graph}_forward_kernels.py", f"{graph}_backward_kernels.py"} <= names
    first, second, *_ = (tmp_path / "index.txt").read_text().split("\n\n")
    branch = f"{FILE}:{defect('TensorBranch')[0]}: if logits.sum() > 0:  # DEFECT tensor branch"
    assert first.splitlines()[:2] == ["forward, graph 0", f"  made of {FC.removeprefix(f'# {ROOT}/')}"]
    files = ["forward/graph_0.txt", "forward/graph_0_forward.txt", "forward/graph_0_forward_kernels.py"]
    assert first.splitlines()[-4:] == [f"  broken at {branch}", *(f"  {file}" for file in files)]
    assert second.startswith("forward, graph 1\n")
    assert "broken at" not in second
    for half in ("forward", "backward"):
        kernels = (tmp_path / "training" / f"graph_0_{half}_kernels.py").read_text()
        assert kernels.startswith(f"# Made of:\n{FC}\n")
        assert "def call(" in kernels


def test_the_stages_of_a_compile(compose, monkeypatch, needs_compiler):
    config = of(compose, "Clean").config
    monkeypatch.setattr("trainkit.diagnosis.diagnose.STAGE_BACKENDS", ("aot_eager",))
    (spent,) = stages(config).values()  # in a process of its own
    assert set(spent) == set(facts.STAGES)
    assert spent["capture"] > 0 < spent["differentiation"]
    assert spent["lowering"] == spent["code generation"] == spent["autotuning"] == 0
    spent = stages_of(config, "inductor")
    assert all(spent[name] > 0 for name in ("capture", "differentiation", "lowering", "code generation"))
    parts = ("compile.scope=parts", "compile.parts=[{match: fc}]", "compile.mode=eager")
    assert stages_of(compose(*config.job.overrides, *parts), "aot_eager")["capture"] > 0


def test_a_recompile_limit_does_not_keep_the_stages_away(compose):
    one = of(compose, "Clean", "compile.max_recompiles=3", "compile.on_recompile_limit=raise")
    assert stages_of(one.config, "eager")["capture"] > 0


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["compile.mode=foo"], r"compile\.mode = foo: expected one of eager, .*"),
        (["model.widht=3"], r"model\.widht = 3: no such setting; did you mean model\.width\?"),
        (["-m"], r"-m: a diagnosis is of one network with one setting; leave it out, and diagnose each"),
        (["-m", "compile.mode=foo"], r"-m: a diagnosis is of .*\ncompile\.mode = foo: expected .*"),
        (["--json", "nowhere/found.json"], r"--json = nowhere/found\.json: expected a file in a folder that is there"),
        (["--code", str(ROOT / "README.md")], r"--code = .*README\.md: File exists; give a folder"),
    ],
)
def test_a_mistake_is_one_line_and_exit_status_2(words, line, script):
    done = script(*words)
    assert done.returncode == 2
    assert re.fullmatch(line, done.stderr.strip())
