"""The layer law of the design: imports go downwards only."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
# Each room and what of ours it may import. Edges (train.py, scripts, the launcher) may import any of trainkit.
MAY_IMPORT = {
    "config": set(),
    "results": {"config"},
    "intervals": set(),
    "settings": {"config", "results"},
    "compare": {"intervals", "results", "settings"},
    "baseline": {"compare", "intervals", "results", "settings"},
    "contrasts": {"compare", "intervals", "results", "settings"},
    "claims": {"contrasts"},
    "formatting": {"compare", "intervals"},
    "words": {
        *("advice", "baseline", "compare", "config", "findings", "formatting", "intervals", "results", "settings"),
    },
    "verdicts": {"claims", "compare", "contrasts", "formatting", "settings", "words"},
    "report": {"baseline", "compare", "findings", "formatting", "results", "settings", "verdicts", "words"},
    "summary": {"compare", "formatting", "report", "results", "words"},
    "svg": {"formatting"},
    "plots": {
        *("compare", "contrasts", "formatting", "intervals", "results", "settings", "svg", "verdicts", "words"),
    },
    "page": {
        *("advice", "compare", "findings", "formatting", "plots", "report", "results", "svg", "verdicts", "words"),
    },
    "publish": {"compare", "verdicts", "words"},
    "study": {"claims", "compare", "contrasts", "findings", "plots", "report", "results", "svg", "verdicts", "words"},
    "cli": {"config"},
    "places": set(),
    "records": set(),
    "sites": {"places", "records"},
    "facts": {"config", "places", "records", "sites"},
    "advice": set(),
    "findings": {"intervals"},
    "outcomes": set(),
    "silence": set(),
    "graphs": {"config", "places"},
    "scope": {"config"},
    "marks": {"config", "facts"},
    "errors": {"marks"},
    "compile": {"config", "errors", "facts", "marks", "places", "scope", "sites"},
    "machine": set(),
    "steps": {"machine"},
    "clock": {"steps"},
    "meters": {"clock", "facts", "machine", "steps"},
    "latency": {"clock", "meters", "steps"},
    "deadline": set(),
    "data": {"data", "config", "results"},
    "loss": set(),
    "task": {"compile", "config", "loss", "results", "scope"},
    "build": {"compile", "config", "data", "errors", "loss"},
    "checkpoint": {"config", "errors", "results"},
    "numerics": {"compile", "config", "errors", "task"},
    "trial": {
        *("build", "checkpoint", "clock", "compile", "config", "data", "errors", "facts", "places", "silence"),
        "task",
    },
    "costs": {"config", "errors", "findings", "graphs", "intervals", "outcomes", "trial"},
    "draws": {"config", "places", "trial"},
    "diagnose": {
        *("advice", "config", "costs", "draws", "errors", "facts", "findings", "graphs", "machine", "places", "trial"),
    },
    "ending": {"config", "errors", "results"},
    "run": {
        *("build", "checkpoint", "clock", "compile", "config", "data", "ending", "facts", "machine", "meters"),
        *("numerics", "results", "steps", "task"),
    },
    "forward": {
        *("build", "checkpoint", "compile", "config", "data", "deadline", "ending", "facts", "latency", "machine"),
        *("results", "scope", "steps", "task"),
    },
}
WITHOUT_TORCH = (
    "config",
    "results",
    "intervals",
    "settings",
    "compare",
    "baseline",
    "claims",
    "contrasts",
    "formatting",
    "words",
    "verdicts",
    "report",
    "summary",
    "svg",
    "plots",
    "page",
    "publish",
    "study",
    "cli",
    "advice",
    "findings",
    "outcomes",
    "silence",
    "deadline",
)


def imports(path: Path) -> set[str]:
    """The dotted names of all modules that a file imports, anywhere in it."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            found |= {f"{node.module}.{alias.name}" for alias in node.names} | {str(node.module)}
    return found


def rooms() -> list[Path]:
    return [path for path in sorted((ROOT / "trainkit").rglob("*.py")) if path.name != "__init__.py"]


def room(path: Path) -> str:
    return path.relative_to(ROOT / "trainkit").parts[0].removesuffix(".py")


@pytest.mark.parametrize("path", rooms(), ids=lambda path: path.stem)
def test_a_room_imports_only_from_below(path):
    ours = {name.split(".")[1] for name in imports(path) if name.startswith("trainkit.")}
    names = {p.stem for p in (ROOT / "trainkit").iterdir()}
    assert ours & names <= MAY_IMPORT[room(path)] | {room(path)}


@pytest.mark.parametrize("path", rooms(), ids=lambda path: path.stem)
def test_nobody_imports_models_and_results_need_no_torch(path):
    roots = {name.split(".")[0] for name in imports(path)}
    assert not roots & {"models", "hydra_plugins", "train"}
    assert ("wandb" in roots) <= (room(path) == "publish")
    if room(path) in WITHOUT_TORCH:
        assert not roots & {"torch", "lightning", "torchmetrics"}


@pytest.mark.parametrize("path", sorted((ROOT / "models").glob("*.py")), ids=lambda path: path.stem)
def test_networks_import_torch_alone(path):
    standard = {"math", "collections", "dataclasses", "functools", "typing"}
    # A choice that torch.compile cannot see through, and the worked example of a kernel of one's own.
    subject = {"convnet_mix": "numpy", "local_optimized": "triton"}.get(path.stem, "torch")
    assert {name.split(".")[0] for name in imports(path)} <= {"torch", subject} | standard


@pytest.mark.parametrize("path", rooms(), ids=lambda path: path.stem)
def test_secrets_stay_in_their_room(path):
    text, tree = path.read_text(), ast.parse(path.read_text())
    names = {ast.unparse(node) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    if room(path) not in ("compile", "errors", "facts", "graphs", "records", "sites"):
        assert not {n for n in imports(path) if "torch._dynamo" in n or "torch._inductor" in n}
        assert not {n for n in names if n == "torch.compile" or n.startswith(("torch._dynamo", "torch._inductor"))}
    if room(path) != "clock":
        assert not {n for n in names if n.startswith(("time.perf_counter", "time.monotonic", "time.time"))}
    if room(path) != "machine":
        assert "max_memory" not in text
        assert "getrusage" not in text


def test_the_edge_is_thin():
    assert len((ROOT / "train.py").read_text().splitlines()) <= 40
    assert len((ROOT / "scripts" / "bench.py").read_text().splitlines()) <= 40


def test_every_package_file_is_of_a_known_room():
    assert {room(path) for path in rooms()} == set(MAY_IMPORT)
