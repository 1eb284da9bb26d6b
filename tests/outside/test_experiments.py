"""Networks, data, objectives, metrics and parameter groups of a user's own: trained in two modes and compared."""

import io
from pathlib import Path

import pytest
from rich.console import Console

import trainkit
from trainkit.report.terminal import print_comparison

OUTSIDE = Path(__file__).parent
CONF = OUTSIDE / "conf"
METRICS = {
    "contrastive": "Retrieval",
    "dict_outputs": "accuracy",
    "keywords": "MulticlassF1Score",
    "regression": "R2Score",
    "segmentation": "accuracy",
    "two_outputs": None,
}


@pytest.fixture
def own_package(monkeypatch):
    monkeypatch.syspath_prepend(OUTSIDE)


def composed(experiment: str, *words: str):
    short = ["trainer.limit_train_batches=12", "compile.backend=aot_eager", "logger=none", "trainer.accelerator=cpu"]
    return trainkit.compose([f"experiment={experiment}", *short, *words], config_dir=CONF)


def shown(comparison) -> str:
    console = Console(file=io.StringIO(), width=120)
    print_comparison(comparison, console)
    return console.file.getvalue()


def test_all_experiments_are_here():
    assert sorted(METRICS) == sorted(path.stem for path in (CONF / "experiment").glob("*.yaml"))


@pytest.mark.parametrize("experiment", METRICS)
def test_an_experiment_is_trained_in_two_modes_and_compared(experiment, own_package, tmp_path):
    for mode in ("eager", "default"):
        folder = tmp_path / mode
        words = f"compile.mode={mode}", f"hydra.run.dir={folder}", "trainer.max_epochs=2"
        row = trainkit.run(composed(experiment, *words))
        assert (row.status, row.error, row.metric_name) == ("ok", None, METRICS[experiment])
        assert (row.effective_mode, row.num_graph_breaks) == (mode, 0)
    net = trainkit.load(tmp_path / "eager" / "checkpoints" / "last.ckpt")
    assert type(net).__module__ == "lab.networks"
    comparison = trainkit.compare(trainkit.read_rows(tmp_path))
    (group,) = comparison.groups
    assert [len(group.candidates), comparison.dropped] == [2, ()]
    assert METRICS[experiment] is None or METRICS[experiment] in shown(comparison)


@pytest.mark.parametrize("experiment", ["keywords", "contrastive"])
def test_an_experiment_is_diagnosed(experiment, own_package):
    diagnosis = trainkit.diagnose(composed(experiment))
    assert [phase.error for phase in diagnosis.phases] == [None] * len(diagnosis.phases)
