"""What of a network is compiled: patterns, functions, repeated blocks; what comes of it is in the row, part by part."""

import dataclasses

import pytest
import torch
from torch import nn

import trainkit.models.local_optimized
from tests.conftest import parameters, same
from tests.networks import network
from trainkit.compiler import regions
from trainkit.config.errors import ConfigError
from trainkit.config.schema import CompileConfig, Mode, PartConfig, Scope
from trainkit.models.convnet_mix import ConvNetMix
from trainkit.report import compiler_facts, markdown, summary
from trainkit.results.facts import Region
from trainkit.results.files import read_row
from trainkit.training.run import run

QUICK = ("trainer.max_epochs=1", "trainer.limit_train_batches=6", "trainer.limit_val_batches=0")
EXACT = ("compile.backend=eager", *QUICK)
PARTS = "compile.scope=parts"
MIX = ("model=convnet_mix", "model.width=4", PARTS)
ACTIVATION = "trainkit.models.local_optimized.costly_activation"
NETWORK = "trainkit.models.local_optimized.LocalOptimized"


def asked(match: str, mode: str = "default") -> PartConfig:
    return PartConfig(match, Mode[mode], None, False, "inductor", {})


def found(net: nn.Module, *parts: PartConfig) -> dict[str, str]:
    config = CompileConfig(scope=Scope.parts, parts=list(parts))
    return {target.name: target.config.mode for target in regions.select_targets(config, net)}


def test_a_pattern_names_modules_between_two_dots_and_the_last_that_matches_holds():
    net = ConvNetMix(1, 10, width=4)
    assert list(found(net, asked("features"))) == ["features"]
    assert list(found(net, asked("features.[02]"))) == ["features.0", "features.2"]
    assert list(found(net, asked("features.*.bn"))) == ["features.0.bn", "features.2.bn"]
    both = found(net, asked("classifier.*"), asked("classifier.3", "eager"))
    assert both == {f"classifier.{n}": "eager" if n == 3 else "default" for n in range(5)}
    assert found(net, asked("classifier.3", "eager"), asked("classifier.*"))["classifier.3"] == "default"
    assert found(net, asked(ACTIVATION), asked("features")) == {"features": "default", ACTIVATION: "default"}


def test_patterns_do_not_see_the_wrapper_of_checkpointed_blocks():
    from trainkit.training.objective import checkpoint_blocks

    net = ConvNetMix(1, 10, width=4)
    checkpoint_blocks(net)
    assert list(found(net, asked("features.0"))) == ["features.0"]
    assert list(found(net, asked("features.*.bn"))) == ["features.0.bn", "features.2.bn"]


@pytest.mark.parametrize(
    ("parts", "complaints"),
    [
        ([asked("feature")], ["compile.parts = feature: matches no module of ConvNetMix and names no function; "]),
        ([asked("*.*.*.*.*"), asked("x")], ["compile.parts = *.*.*.*.*: ", "compile.parts = x: "]),
        ([asked(NETWORK)], [f"compile.parts = {NETWORK}: "]),
        ([asked("json.nothing.at_all")], ["compile.parts = json.nothing.at_all: matches no module"]),
        (
            [asked("classifier")],
            ["compile.parts = classifier: classifier is a ModuleList, which is never called; match its entries, class"],
        ),
        ([asked("features"), asked("features.2")], ["compile.parts = features.2: features.2 is inside of features, "]),
        ([asked("torch.nn.functional.relu")], ["compile.parts = torch.nn.functional.relu: belongs to torch, and "]),
        (
            [asked("json.dumps"), asked("nothing")],
            ["compile.parts = json.dumps: belongs to json, and would be replaced for ", "compile.parts = nothing: "],
        ),
        ([asked("features", "eager")], ["compile.parts: all have mode = eager, so nothing would be compiled; "]),
    ],
)  # fmt: skip
def test_a_pattern_that_cannot_be_compiled_is_one_line(parts, complaints):
    with pytest.raises(ConfigError) as caught:
        found(ConvNetMix(1, 10, width=4), *parts)
    assert len(caught.value.complaints) == len(complaints)
    for line, start in zip(caught.value.complaints, complaints, strict=True):
        assert line.startswith(start)


def test_a_network_without_repeated_blocks_is_one_line(compose):
    with pytest.raises(ConfigError, match=r"compile\.scope = blocks: Plain has no repeated blocks"):
        run(compose(network("Plain"), "compile.scope=blocks", *EXACT))


@pytest.mark.parametrize("more", [(), ("trainer.activation_checkpointing=true",)], ids=["plain", "checkpointed"])
def test_blocks_are_found_in_a_network_within_another_one(compose, more):
    row = run(compose(network("Within"), "compile.scope=blocks", *EXACT, *more))
    assert (row.status, [part.name for part in row.compiled_parts]) == ("ok", ["inner.blocks.0", "inner.blocks.1"])


@pytest.mark.parametrize(
    ("typed", "line"),
    [
        ("compile.parts=[{match: nothing.*}]", "compile.parts = nothing.*: matches no module of SimpleCNN and "),
        ("compile.parts=[{matc: fc}]", "compile.parts = [{matc: fc}]: no such setting: matc; see python train.py"),
        ("compile.parts=[{match: fc, mode: fast}]", "compile.parts = [{match: fc, mode: fast}]: expected one of ea"),
        ("compile.parts=fc", "compile.parts = fc: expected entries as in compile.parts=[{match: NAME}]"),
        ("compile.parts=[conv1]", "compile.parts = [conv1]: expected entries as in compile.parts=[{match: NAME}]"),
        ("compile.parts=[{match: [fc]}]", "compile.parts = [{match: [fc]}]: expected text; entries as in compile.p"),
        ("compile.parts=[{match: null}]", "compile.parts = [{match: null}]: expected text; entries as in compile.pa"),
        ("compile.parts=[]", "compile.parts = []: compile.scope=parts compiles nothing without; "),
        ("compile.parts=[{mode: eager}]", "compile.parts: one has no match; name modules of the network or a function"),
    ],
)  # fmt: skip
def test_parts_typed_wrongly_are_one_line(complaints_about, typed, line):
    (complaint,) = complaints_about(PARTS, typed)
    assert complaint.startswith(line)


def test_wrong_parts_end_with_status_2_and_leave_no_row(train, tmp_path):
    done = train(PARTS, "compile.parts=[{match: nothing.*}]", "logger=none")
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1), done.stderr
    assert not list(tmp_path.rglob("row.json"))


def test_parts_without_effect_are_one_line(compose):
    parts = "compile.parts=[{match: features},{match: fc, mode: reduce-overhead}]"
    with pytest.raises(ConfigError) as caught:
        compose(parts, "compile.scope=step")
    (line,) = caught.value.complaints
    assert line.startswith("compile.parts = features, fc: not of compile.scope = step; use compile.scope=parts")
    compose(parts, PARTS, "compile.mode=eager")  # what the others are compared with


@pytest.mark.parametrize(
    ("part", "line"),
    [
        ("backend: none", "compile.parts, fc: backend = none: expected one of eager, aot_eager, "),
        (
            "backend: eager, mode: max-autotune",
            "compile.parts, fc: mode = max-autotune: modes belong to the backend inductor, and its backend = eager; ",
        ),
    ],
)
def test_a_wrong_backend_of_a_part_is_told_as_the_parts(compose, part, line):
    with pytest.raises(ConfigError) as caught:
        run(compose(PARTS, f"compile.parts=[{{match: conv1}},{{match: fc, {part}}}]", "compile.on_error=eager"))
    (said,) = caught.value.complaints
    assert said.startswith(line)


def test_each_part_is_compiled_as_it_asks_and_the_row_says_so(compose, tmp_path):
    parts = "compile.parts=[{match: features, fullgraph: true},{match: classifier.*, dynamic: true}]"
    row = run(compose(*MIX, parts, *EXACT))
    assert (row.status, row.effective_mode, row.num_graphs, row.num_recompiles) == ("ok", "default", 2, 0)
    assert row.compile_parts == [
        {"match": "features", "fullgraph": True},
        {"match": "classifier.*", "dynamic": True},
    ]
    told = {"mode": "default", "backend": "eager", "num_calls": 6}
    assert row.compiled_parts == [
        Region("features", dynamic=None, fullgraph=True, num_graphs=1, reused=False, **told),
        Region("classifier.0", dynamic=True, fullgraph=False, num_graphs=1, reused=False, **told),
        *(
            Region(f"classifier.{n}", dynamic=True, fullgraph=False, num_graphs=0, reused=True, **told)
            for n in range(1, 5)
        ),
    ]
    assert read_row(tmp_path / "run") == row
    said = compiler_facts.compiled_regions(row)
    assert said == "features to classifier.0 (1 graph), classifier.1 to classifier.4 (reused)"


@pytest.mark.parametrize(
    "words",
    [
        (PARTS, "compile.parts=[{match: features},{match: classifier.*}]", "model=convnet_mix"),
        ("compile.scope=blocks", "model=convnet_mix"),
        (PARTS, f"compile.parts=[{{match: {ACTIVATION}}},{{match: stage2}}]", "model=local_optimized"),
    ],
    ids=["modules", "blocks", "function"],
)
def test_parts_train_to_the_parameters_of_eager_bit_for_bit_and_their_keys_stay(compose, tmp_path, words):
    small = (*words, "model.width=8", *EXACT)
    row = run(compose(*small, run_dir=tmp_path / "parts"))
    plain = run(compose(*small, "compile.mode=eager", run_dir=tmp_path / "eager"))
    assert row.num_graphs > 0
    assert (plain.num_graphs, plain.compiled_parts) == (0, None)
    assert same(parameters(tmp_path / "parts"), parameters(tmp_path / "eager"))


@pytest.mark.parametrize("own", [True, False], ids=["a class of ours", "torch.nn alone"])
@pytest.mark.parametrize("more", [(), ("trainer.activation_checkpointing=true",)], ids=["plain", "checkpointed"])
def test_blocks_are_compiled_once_however_deep_the_network(compose, tmp_path, own, more):
    rows = [
        run(
            compose(
                network("Deep"), f"+model.depth={depth}", f"+model.own={own}", "compile.scope=blocks",
                "compile.backend=aot_eager", *QUICK, *more, run_dir=tmp_path / f"{depth}",
            )
        )
        for depth in (3, 6)
    ]  # fmt: skip
    assert [len(row.compiled_parts) for row in rows] == [3, 6]
    for row in rows:
        assert (row.status, row.effective_mode, row.num_graph_breaks) == ("ok", "default", 0)
        # The images need no gradient, the hidden states do: two variants.
        assert (row.num_graphs, row.num_recompiles) == (2, 1)
        assert [part.num_graphs for part in row.compiled_parts[2:]] == [0] * (len(row.compiled_parts) - 2)


def test_blocks_of_other_sizes_are_no_recompiles_of_each_other(compose):
    row = run(compose(network("Narrows"), "compile.scope=blocks", *EXACT))
    assert (row.recompile_limit_hit, row.effective_mode) == (False, "default")
    assert (row.num_graphs, row.num_recompiles) == (9, 0)


def test_a_function_is_compiled_for_the_time_of_the_run_alone(compose, tmp_path):
    plain = trainkit.models.local_optimized.costly_activation
    parts = f"compile.parts=[{{match: {ACTIVATION}}}]"
    row = run(compose("model=local_optimized", "model.width=8", PARTS, parts, *EXACT))
    assert trainkit.models.local_optimized.costly_activation is plain
    (part,) = row.compiled_parts
    assert (part.name, part.num_graphs, part.num_calls) == (ACTIVATION, 2, 12)  # of two widths
    failed = run(compose(network("Raises"), PARTS, parts, *EXACT, run_dir=tmp_path / "failed"))
    assert failed.status == "failed"
    assert trainkit.models.local_optimized.costly_activation is plain


def test_a_function_in_a_part_is_of_its_graph_and_left_out_of_it_by_eager(compose, tmp_path):
    local = ("model=local_optimized", "model.width=8", PARTS, *EXACT)
    within, without = (
        run(compose(*local, f"compile.parts=[{{match: stage1}},{{match: {ACTIVATION}{how}}}]", run_dir=tmp_path / name))
        for name, how in (("within", ""), ("without", ", mode: eager"))
    )
    assert [part.num_calls for part in within.compiled_parts] == [6, 6]  # stage2's calls are the function's own
    assert within.num_graph_breaks == 0
    assert without.num_graph_breaks == 1
    assert [part.name for part in without.compiled_parts] == ["stage1"]


def test_a_module_left_out_of_a_part_breaks_its_graph(compose):
    row = run(compose(*MIX, "compile.parts=[{match: features},{match: features.2, mode: eager}]", *EXACT))
    assert [part.name for part in row.compiled_parts] == ["features"]
    assert row.num_graph_breaks == 1
    (cause,) = compiler_facts.graph_break_causes(row)
    assert cause.remedy.cause == "part that is left out"


def test_a_part_of_which_all_is_left_out_has_no_graph(compose):
    parts = "[{match: features},{match: features.*, mode: eager},{match: classifier.*}]"
    row = run(compose(*MIX, f"compile.parts={parts}", *EXACT))
    said = "features (no graph), classifier.0 (1 graph), classifier.1 to classifier.4 (reused)"
    assert compiler_facts.compiled_regions(row) == said


def test_a_part_that_is_never_called_is_not_what_was_asked(compose):
    row = run(compose(network("Deep"), PARTS, "compile.parts=[{match: blocks.*},{match: idle}]", *EXACT))
    assert (row.status, row.effective_mode) == ("ok", "mixed")
    assert row.effective_mode_reason == "never called by themselves: idle"


def test_cuda_graphs_of_a_part_that_did_not_take_effect_are_said(compose, needs_compiler):
    parts = "compile.parts=[{match: fc, mode: reduce-overhead},{match: conv1}]"
    row = run(compose(PARTS, parts, *QUICK, "trainer.accelerator=cpu"))
    assert {part.name: part.mode for part in row.compiled_parts} == {"conv1": "default", "fc": "reduce-overhead"}
    assert row.effective_mode == "mixed"
    assert "CUDA graphs did not take effect" in row.effective_mode_reason


def test_parts_compiled_in_different_ways_are_no_recompiles_of_each_other(compose):
    heads = ",".join(f"{{match: classifier.{n}, dynamic: {['null', 'true', 'false'][n % 3]}}}" for n in range(5))
    parts = f"compile.parts=[{heads},{{match: features.*}}]"
    row = run(compose(*MIX, parts, *EXACT))
    assert (row.recompile_limit_hit, row.effective_mode) == (False, "default")
    assert row.num_recompiles == 0


@pytest.mark.parametrize("scope", ["blocks", "parts"])
def test_a_resumed_run_of_parts_has_the_parameters_of_the_uninterrupted_one(compose, tmp_path, scope):
    parts = ("compile.parts=[{match: blocks.*},{match: fc}]",) if scope == "parts" else ()
    words = (network("Blocks"), f"compile.scope={scope}", *parts, "compile.backend=aot_eager")
    words = (*words, "trainer.limit_train_batches=5", "trainer.warmup_steps=5")
    run(compose(*words, "trainer.max_epochs=2", run_dir=tmp_path / "whole"))
    run(compose(*words, "trainer.max_epochs=1", run_dir=tmp_path / "parts"))
    run(compose(*words, "trainer.max_epochs=2", "ckpt_path=last", run_dir=tmp_path / "parts"))
    assert same(parameters(tmp_path / "parts"), parameters(tmp_path / "whole"))


def test_the_check_compares_compiled_parts_with_a_plain_eager(compose):
    parts = f"compile.parts=[{{match: {ACTIVATION}}},{{match: stage1.bn}}]"
    row = run(compose("model=local_optimized", "model.width=8", PARTS, parts, "check=true", *EXACT))
    assert (row.check_passed, row.check_reason) == (True, None)
    assert row.check_loss_rel_diff == row.check_eager_loss_rel_diff


def test_a_function_that_computes_something_else_when_compiled_does_not_pass_the_check(compose, monkeypatch):
    def wrong(x):
        return x * (2 if torch.compiler.is_compiling() else 1)

    monkeypatch.setattr(trainkit.models.local_optimized, "costly_activation", wrong)
    parts = f"compile.parts=[{{match: {ACTIVATION}}}]"
    row = run(compose("model=local_optimized", "model.width=8", PARTS, parts, "check=true", *EXACT))
    assert row.check_passed is False


def test_what_cannot_be_compiled_goes_on_uncompiled_in_all_parts(compose):
    words = (network("Breaks"), PARTS, "compile.parts=[{match: fc}]", *EXACT)
    assert run(compose(*words)).effective_mode == "default"  # the break lies outside of the part
    words = ("model=convnet_mix", "model.random_head=true", PARTS, f"compile.parts=[{{match: {ACTIVATION}}}]", *EXACT)
    assert run(compose(*words)).effective_mode == "eager"


def test_two_ranks_train_parts_as_they_train_eager(train, tmp_path):
    words = (
        "model=mini_transformer", "model.dim=16", "model.depth=3", "model.num_heads=2", "data=synthetic",
        "data.seq_len=8", "data.batch_size=4", "data.num_batches=6", "compile.backend=eager", "trainer.max_epochs=1",
        "logger=none", "ddp.bucket_cap_mb=1",
    )  # fmt: skip
    scopes = {
        "eager": ["compile.mode=eager"],
        "blocks": ["compile.scope=blocks"],
        "parts": [PARTS, "compile.parts=[{match: blocks.*},{match: head}]"],
    }
    for name, words_of in scopes.items():
        done = train(*words, *words_of, f"hydra.run.dir={name}", ranks=2)
        assert done.returncode == 0, done.stderr
    eager = parameters(tmp_path / "eager")
    for name in ("blocks", "parts"):
        row = read_row(tmp_path / name)
        assert (row.status, row.world_size, row.effective_mode) == ("ok", 2, "default")
        assert [part.name for part in row.compiled_parts][:3] == ["blocks.0", "blocks.1", "blocks.2"]
        for key, tensor in parameters(tmp_path / name).items():
            torch.testing.assert_close(tensor, eager[key])


def test_the_summary_and_the_report_name_the_parts(compose, tmp_path, capsys):
    from trainkit.analysis.comparison import compare

    row = run(compose(*MIX, "compile.parts=[{match: features}]", *EXACT[:2], "trainer.limit_val_batches=0"))
    summary.print_run(row, tmp_path / "run")
    assert "features (1 graph)" in capsys.readouterr().out
    eager = dataclasses.replace(row, compile_mode="eager", effective_mode="eager", compiled_parts=None, run_id="e")
    whole = dataclasses.replace(row, compile_scope="step", compile_parts=None, compiled_parts=None, run_id="w")
    (group,) = compare([row, eager, whole]).groups
    assert sorted(setting.label for setting in group.candidates) == [
        "default, scope=parts, parts=features",
        "default, scope=step",
        "eager",
    ]
    assert "compiled features (1 graph)." in markdown.markdown_comparison(compare([row, eager, whole]))
