"""The table of torch's private names holds for the installed torch; without a name its facts are unknown."""

import ast
import importlib
from pathlib import Path

import pytest
import torch
from packaging.specifiers import SpecifierSet
from packaging.version import Version

import trainkit
from tests.networks import network
from trainkit.compiler import dynamo, facts
from trainkit.compiler.observer import Observer
from trainkit.compiler.private_names import PRIVATE_NAMES, find, require
from trainkit.training.run import run

TRAINING = ("compile.backend=aot_eager", "trainer.max_epochs=1", "trainer.limit_val_batches=0")


@pytest.mark.parametrize("name", PRIVATE_NAMES, ids=lambda name: f"{name.module}.{name.attribute}")
def test_the_installed_torch_has_the_names_that_the_table_says_it_has(name):
    owner = importlib.import_module(name.module)
    *path, attribute = name.attribute.split(".")
    for part in path:
        owner = getattr(owner, part)
    has_name = hasattr(owner, attribute)
    assert has_name == SpecifierSet(name.versions).contains(Version(torch.__version__).base_version)


def test_the_texts_of_torch_are_as_the_adapter_reads_them():
    assert find("_CHECKPOINT_WRAPPED_MODULE") == dynamo.CHECKPOINTED
    resumed = dynamo.RESUMED.fullmatch(f"{find('TORCH_DYNAMO_RESUME_IN_PREFIX')}_forward_at_12")
    assert resumed.groups() == ("forward", "12")
    with pytest.raises(RuntimeError, match=dynamo.FAIL_ON_RECOMPILE):
        fail_on_recompile()


def fail_on_recompile() -> None:
    compiled = torch.compile(lambda x: x + 1, backend="eager", dynamic=False)
    compiled(torch.ones(2))
    with torch.compiler.set_stance(dynamo.FAIL_ON_RECOMPILE):
        compiled(torch.ones(3))


def test_a_name_that_a_setting_needs_is_named_where_it_is_gone(monkeypatch):
    monkeypatch.delattr(torch._dynamo, "mark_dynamic")
    with pytest.raises(NotImplementedError, match=r"torch\._dynamo\.mark_dynamic: missing in torch .*mark_dynamic"):
        require("mark_dynamic")


def private_names(path: Path) -> set[str]:
    """The names of torch's private packages in a file's imports and expressions; not those in its texts."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add(str(node.module))
        elif isinstance(node, ast.Attribute):
            names.add(ast.unparse(node))
    return {name for name in names if name.startswith("torch._")} - {"torch.__version__", "torch.__file__"}


def test_no_module_uses_private_packages_of_torch_without_the_adapter():
    package = Path(trainkit.__file__).parent
    users = [str(path.relative_to(package)) for path in package.rglob("*.py") if private_names(path)]
    assert users == []


# One per private name: without it its facts are unknown, and the run is trained and measured as before.
@pytest.mark.parametrize(
    ("name", "unknown"),
    [
        ("graph_break_reasons", ["num_graph_breaks", "graph_breaks"]),
        ("get_compilation_metrics", ["num_recompiles", "recompiles", "recompile_limit_hit", "graph_sizes"]),
        ("clear_compilation_metrics", []),
        ("set_compilation_metrics_limit", []),
    ],
)
def test_a_private_name_that_is_gone_makes_its_facts_unknown(compose, monkeypatch, name, unknown):
    monkeypatch.delattr(torch._dynamo.utils, name)
    row = run(compose(*TRAINING, network("Breaks"), "trainer.limit_train_batches=6"))
    assert (row.status, row.effective_mode, row.num_graphs) == ("ok", "default", 3)
    assert row.compile_time_s > 0
    for field in (
        "num_graph_breaks",
        "graph_breaks",
        "num_recompiles",
        "recompiles",
        "recompile_limit_hit",
        "graph_sizes",
    ):
        assert (getattr(row, field) is None) == (field in unknown), field


def test_without_torchs_counters_the_effective_mode_is_unknown(compose, monkeypatch):
    config = compose(*TRAINING).compile
    monkeypatch.delattr(torch._dynamo.utils, "counters")
    collected = facts.collect(config, facts.Observations(frozenset(["default"])))
    assert (collected.num_graphs, collected.num_cudagraph_skips) == (None, None)
    assert (collected.cache_hits, collected.cache_found) == (None, None)
    assert (collected.effective_mode, collected.effective_mode_reason) == (None, facts.UNKNOWN)


def test_without_torchs_callbacks_nothing_is_called_back_and_nothing_breaks(monkeypatch):
    monkeypatch.delattr(torch._dynamo.callback, "callback_handler")
    kinds = []
    with Observer(kinds.append, kinds.append).listening():
        torch.compile(lambda x: x + 1, backend="eager")(torch.ones(2))
    assert kinds == []
