"""What the compiler did is read back exactly, to the line; what a torch does not tell is unknown, and stops nothing."""

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch._dynamo
from torch import Tensor, nn

from tests import networks
from trainkit.compiler import facts
from trainkit.compiler.compiler import Compiler
from trainkit.compiler.observer import compile_kind
from trainkit.compiler.source import user_location
from trainkit.config.schema import CompileConfig, Mode
from trainkit.results.row import COMPILE_KINDS
from trainkit.training.run import run

TRAINING = ("compile.backend=aot_eager", "trainer.max_epochs=1", "trainer.limit_val_batches=0")


def network(name: str) -> str:
    return f"model._target_=tests.networks.{name}"


def lines(comment: str) -> list[int]:
    text = Path(networks.__file__).read_text().splitlines()
    return [number for number, line in enumerate(text, start=1) if line.endswith(f"# {comment}")]


def test_every_graph_break_is_one_site_in_its_line(compose):
    row = run(compose(*TRAINING, network("ManyBreaks"), "trainer.limit_train_batches=6"))
    expected = [lines(f"BREAK {name}")[0] for name in ("print", "item", "branch", "numpy")]
    assert [(site.file, site.line) for site in row.graph_breaks] == [("tests/networks.py", n) for n in expected]
    assert row.num_graph_breaks == 4
    assert all(site.reason for site in row.graph_breaks)
    assert not any(site.uncompiled or site.uncompiled_after for site in row.graph_breaks)
    assert (row.effective_mode, row.effective_mode_reason, row.num_eager_steps) == ("default", None, 0)


# Where the function is not first traced as a part of another one, torch tells the last place before the break alone.
@pytest.mark.parametrize(
    ("name", "words", "comments"),
    [
        ("TriesFirst", [], ["FIRST break"]),
        ("TriesFirst", ["compile.scope=net"], ["FIRST last place"]),
        ("BreaksInTry", [], ["BREAK before", "BREAK last place"]),
        ("BreaksInLoop", [], ["LOOP before", "LOOP break"]),
    ],
)
def test_what_is_left_to_python_after_a_break_is_said(compose, name, words, comments):
    row = run(compose(*TRAINING, network(name), "trainer.limit_train_batches=6", *words))
    places = [lines(comment)[0] for comment in comments]
    told = [(site.file, site.line, site.uncompiled_after) for site in row.graph_breaks]
    left = [("tests/networks.py", place, None) for place in places[:-1]]
    assert told == [*left, ("tests/networks.py", places[-1], "forward")]
    assert (row.effective_mode, row.num_eager_steps, row.num_compiled_steps) == ("mixed", 6, 0)
    assert row.effective_mode_reason == (f"graph breaks leave to Python: forward after tests/networks.py:{places[-1]}")


def test_a_function_left_to_python_as_a_whole_is_said(compose):
    words = ("model._target_=tests.defects.BranchInLoop", "trainer.limit_train_batches=6")
    row = run(compose(*TRAINING, *words))
    assert (row.effective_mode, row.num_eager_steps) == ("mixed", 6)
    assert row.effective_mode_reason == "graph breaks leave to Python: forward"


@pytest.mark.parametrize("num_steps", [1, 2, 4, 8])
def test_a_counter_attribute_recompiles_once_a_step_and_says_why(compose, num_steps):
    row = run(compose(*TRAINING, network("Counts"), f"trainer.limit_train_batches={num_steps}"))
    assert (row.num_graphs, row.num_recompiles, row.num_compiling_steps) == (num_steps, num_steps - 1, num_steps)
    assert all(f".calls == {call}" in cause for call, cause in enumerate(row.recompiles))
    assert (row.recompile_limit_hit, row.effective_mode) == (False, "default")
    assert (row.compile_recompile_s > 0) == (num_steps > 1)


def test_a_recompile_names_the_users_file_as_it_is_from_where_the_run_was_started(compose, tmp_path, monkeypatch):
    (tmp_path / "mine.py").write_text(
        "from tests.networks import Plain\n"
        "class Counts(Plain):\n"
        "    calls = 0\n"
        "    def forward(self, images):\n"
        "        self.calls += 1\n"
        "        return super().forward(images) * self.calls\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    row = run(compose(*TRAINING, "model._target_=mine.Counts", "trainer.limit_train_batches=2"))
    assert "  # mine.py:" in row.recompiles[0]
    assert str(tmp_path)[2:] not in row.recompiles[0]


def test_the_recompile_limit_is_said(compose):
    row = run(compose(*TRAINING, network("Counts"), "trainer.limit_train_batches=10"))
    assert (row.num_graphs, row.recompile_limit_hit, row.effective_mode) == (8, True, "mixed")
    assert "recompile limit (8)" in row.effective_mode_reason


def test_a_plain_network_has_no_break_and_its_recompiles_are_validations_variants(compose):
    row = run(compose("compile.backend=aot_eager", "trainer.max_epochs=2"))
    assert (row.num_graph_breaks, row.graph_breaks, row.num_graphs, row.num_recompiles) == (0, [], 3, 2)
    assert "grad_mode" in row.recompiles[0]
    assert "size mismatch" in row.recompiles[1]


def test_the_parts_of_the_compile_time_add_up(compose, needs_compiler):
    words = "model=simple_net", "data=synthetic", "data.num_batches=2", "trainer.max_epochs=1"
    row = run(compose(*words, "compile.cache=cold", "trainer.limit_val_batches=0"))
    parts = [getattr(row, f"compile_{kind}_s") for kind in COMPILE_KINDS]
    assert sum(parts) == pytest.approx(row.compile_time_s)
    assert row.compile_forward_s > 0
    assert row.compile_startup_s > 0
    assert (row.compile_cudagraph_s, row.compile_recompile_s, row.cache_found) == (0, 0, "cold")


def test_the_start_up_is_apart_and_nothing_of_it_is_counted(compose):
    row = run(compose("compile.backend=aot_eager", "trainer.max_epochs=1", "trainer.limit_val_batches=0"))
    assert row.num_graphs == 1
    assert row.compile_startup_s > 0
    seen = []
    started = Compiler(CompileConfig(backend="aot_eager"), seen.append, seen.append)
    with started:
        started.start_up(torch.device("cpu"))
        assert (seen, started.facts().num_graphs) == ([], 0)


def test_the_start_up_waits_for_the_compile_workers_which_would_be_measured_with_the_steps():
    started = """
import torch
from torch._inductor.async_compile import AsyncCompile
from trainkit.compiler.compiler import Compiler
from trainkit.config.schema import CompileConfig

AsyncCompile.wakeup()  # as inductor does at its first compile for a GPU
with Compiler(CompileConfig(backend="aot_eager"), print, print) as compiler:
    compiler.start_up(torch.device("cpu"))
    assert AsyncCompile._ready_future.done()
"""
    environment = {**os.environ, "TORCHINDUCTOR_COMPILE_THREADS": "2"}
    subprocess.run([sys.executable, "-c", started], check=True, env=environment)


class Doubled(nn.Module):
    def forward(self, inputs: Tensor) -> Tensor:
        return inputs * 2


@pytest.mark.parametrize(("mode", "num_marks"), [("eager", 0), ("default", 2)])
def test_each_call_of_what_is_compiled_begins_a_step_of_cuda_graphs(mode, num_marks, monkeypatch):
    marks = []
    monkeypatch.delitem(sys.modules, "torch._inductor.cudagraph_trees", raising=False)
    monkeypatch.setattr(torch.compiler, "cudagraph_mark_step_begin", lambda: marks.append(1))
    with Compiler(CompileConfig(mode=Mode[mode], backend="eager")) as compiler:
        compiler.apply(Doubled(), optimize_ddp=True)
        for _ in range(2):
            compiler(torch.ones(2))
    assert len(marks) == num_marks


def test_a_cache_that_has_it_all_is_warm(compose, tmp_path, needs_compiler):
    rows = [run(compose("trainer.max_epochs=1", run_dir=tmp_path / name)) for name in ("first", "second")]
    assert rows[1].cache_found == "warm"
    assert rows[1].num_graphs == rows[0].num_graphs


def test_cuda_graphs_without_a_gpu_are_a_mode_that_did_not_take_effect(compose, needs_compiler):
    row = run(compose("compile.mode=reduce-overhead", "trainer.max_epochs=1", "trainer.accelerator=cpu"))
    assert (row.effective_mode, row.num_cudagraphs) == ("default", 0)
    assert "CUDA graphs did not take effect" in row.effective_mode_reason


@pytest.mark.parametrize(
    ("trigger", "compile_id", "kind"),
    [
        ("DYNAMO", "0/0", "forward"),
        ("DYNAMO", "3/0_1", "forward"),
        ("LAZY_BACKWARD", "0/0", "backward"),
        ("DYNAMO", "0/2", "recompile"),
        ("LAZY_BACKWARD", "0/1_1", "recompile"),
        ("CUDAGRAPH_RECORDING", "0/1", "cudagraph"),
        ("DYNAMO", "None", "forward"),
    ],
)
def test_what_compile_seconds_go_into(trigger, compile_id, kind):
    assert compile_kind(trigger, compile_id) == kind


def test_what_is_named_as_torch_is_and_lies_beside_it_is_the_users():
    torchs = Path(torch.__file__).parent
    beside = str(torchs.with_name("torchvision") / "models" / "resnet.py")
    stack = [SimpleNamespace(filename=file, lineno=7) for file in (beside, str(torchs / "nn" / "functional.py"))]
    assert user_location(stack) == (beside, 7)


def test_a_place_is_the_users_own_and_of_what_is_installed_only_where_nothing_else_is_there():
    library = str(Path(torch.__file__).parents[1] / "scipy" / "ndimage.py")
    of_trainkit = str(Path(facts.__file__).with_name("task.py"))
    for files, found in (
        ((of_trainkit, "net.py", library), "net.py"),
        ((of_trainkit, "net.py", "<frozen genericpath>"), "net.py"),
        ((of_trainkit, library, os.__file__), library),  # a network of a library's
    ):
        stack = [SimpleNamespace(filename=file, lineno=number) for number, file in enumerate(files)]
        assert user_location(stack) == (found, files.index(found))
