"""Every YAML file of conf/ composes; test_studies.py has the studies."""

from pathlib import Path

import pytest
import yaml

from tests.conftest import CONF
from trainkit.config.composition import FORWARD, compose_config
from trainkit.config.schema import RunConfig

MODELS = sorted(path.stem for path in (CONF / "model").glob("*.yaml") if path.stem != "own")  # which names no class
OTHERS = ("model", "data", "experiment", "hydra", "tune")
EXPERIMENTS = sorted(path for path in (CONF / "experiment").rglob("*.yaml") if "studies" not in path.parts)
PLAIN = [path for path in CONF.glob("*/*.yaml") if path.parent.name not in OTHERS]


def fitting_data(model: str, text_file: Path) -> list[str]:
    inputs = yaml.safe_load((CONF / "model" / f"{model}.yaml").read_text())["inputs"]
    return ["data=digits"] if inputs == "images" else ["data=text", f"data.path={text_file}"]


@pytest.mark.parametrize("model", MODELS)
def test_every_model_composes_with_data_that_fits(model, compose, text_file):
    for data in (fitting_data(model, text_file), ["data=synthetic"]):
        config = compose(f"model={model}", *data)
        assert config.job.model.split(".")[0] == model
        assert config.model["_target_"].split(".")[0] in ("trainkit", "timm", "transformers")


@pytest.mark.parametrize("path", PLAIN, ids=lambda path: f"{path.parent.name}={path.stem}")
def test_every_other_yaml_composes(path, compose):
    choice = [f"{path.parent.name}={path.stem}"]
    if path.stem == "own":
        choice.append(f"{path.parent.name}._target_=torch.nn.MSELoss")
    assert isinstance(compose(*choice, "trainer.accelerator=auto"), RunConfig)


@pytest.mark.parametrize("path", EXPERIMENTS, ids=lambda path: path.stem)
def test_every_experiment_composes(path, tmp_path, text_file):
    name = path.relative_to(CONF / "experiment").with_suffix("")
    config = FORWARD if "\nforward:" in path.read_text() else "config"  # what runs it
    words = ["logger=none", f"experiment={name}", f"++data.path={text_file}"]
    assert isinstance(compose_config(words, CONF, str(tmp_path), config), RunConfig)
