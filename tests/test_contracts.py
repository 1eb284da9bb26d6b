"""Rules of the layout that import-linter cannot hold: which names of a package may be used in which module."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "trainkit"
STANDARD = {"collections", "dataclasses", "functools", "itertools", "math", "typing"}
# numpy chooses between heads out of torch.compile's sight; triton is the worked example of a kernel of one's own.
OTHER_IMPORTS = {"convnet_mix": {"numpy"}, "local_optimized": {"triton"}, "multi_scale_net": {"numpy"}}
CLOCKS = ("time.perf_counter", "time.monotonic", "time.time")
# By package: the clocks of its limits, of its progress, and of the order in which ranks failed; they measure nothing.
TIME_LIMITS = {
    "report": {"time.monotonic"},
    "sweep": {"time.monotonic"},
    "tuning": {"time.monotonic"},
    "distributed": {"time.monotonic", "time.time"},
}
COMPILER = ("torch.compile", "torch._dynamo", "torch._inductor")


def modules() -> list[Path]:
    """All modules of the package but its networks, which are linked into it."""
    paths = []
    for path in sorted(PACKAGE.rglob("*.py")):
        if path.relative_to(PACKAGE).parts[0] not in ("models", "conf"):
            paths.append(path)
    return paths


def imported_names(path: Path) -> set[str]:
    """The dotted names of everything that a file imports, anywhere in it."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def attributes(path: Path) -> set[str]:
    tree = ast.parse(path.read_text())
    return {ast.unparse(node) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}


@pytest.mark.parametrize("path", sorted((ROOT / "models").glob("*.py")), ids=lambda path: path.stem)
def test_networks_import_torch_alone(path):
    packages = {name.partition(".")[0] for name in imported_names(path)}
    assert packages <= {"torch"} | STANDARD | OTHER_IMPORTS.get(path.stem, set())


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_what_a_package_hides_is_used_there_alone(path):
    package = path.relative_to(PACKAGE).parts[0]
    names = imported_names(path) | attributes(path)
    if package != "metrics":
        assert {name for name in names if name.startswith(CLOCKS)} <= TIME_LIMITS.get(package, set())
        assert "cuda.max_memory" not in path.read_text()
    if package != "compiler":
        assert not {name for name in names if name.startswith(COMPILER) and not name.startswith("torch.compiler")}


@pytest.mark.parametrize("path", ["train.py", "scripts/bench.py", "scripts/diagnose.py", "scripts/report.py"])
def test_scripts_only_call_the_commands(path):
    assert len((ROOT / path).read_text().splitlines()) <= 12


@pytest.mark.parametrize("path", ["trainkit/commands/train.py", "trainkit/commands/bench.py", "scripts/studies.py"])
def test_command_lines_are_thin(path):
    assert len((ROOT / path).read_text().splitlines()) <= 55


def test_a_network_has_one_name_in_a_clone_and_in_an_install():
    assert (PACKAGE / "models").resolve() == ROOT / "models"
    assert (PACKAGE / "conf").resolve() == ROOT / "conf"
