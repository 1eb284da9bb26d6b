"""The experiment that a race leaves: `conf/experiment/tuned/NAME.yaml`, with its evidence in comments."""

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import OmegaConf

from trainkit.analysis.advice import Advice
from trainkit.config.errors import ConfigError
from trainkit.formatting import clean
from trainkit.report.advice import advice_sentence
from trainkit.results.ledger import Measurement

EXPERIMENT = "experiment"  # the group
TUNED_FOLDER = Path(EXPERIMENT, "tuned")


def refuse_own_experiment(name: str, overrides: Sequence[str]) -> None:
    """Raise ConfigError if a race would write the experiment that it begins with: the file would include itself."""
    if f"tuned/{name}" in _experiments(overrides):
        raise ConfigError(
            f"experiment = tuned/{name}: is what this race would write; give its result another name, "
            "hydra.sweeper.save_as=NAME"
        )


def refuse_unwritable(into: Path, name: str) -> None:
    """Raise ConfigError if the experiment of a race cannot be written into the config directory `into`."""
    path = _tuned_path(into, name)
    if os.path.exists(path):
        is_writable = path.is_file() and os.access(path, os.W_OK)
    else:
        folder = path.parent
        while not os.path.exists(folder):
            folder = folder.parent
        is_writable = folder.is_dir() and os.access(folder, os.W_OK | os.X_OK)
    if not is_writable:
        raise _unwritable(into, f"{path} cannot be written")


def write_tuned(
    into: Path, name: str, overrides: Sequence[str], advice: Advice, groups: Iterable[str], command: str
) -> Path:
    """Write the settings of a race's choice as an experiment of the config directory `into`. Returns its path.

    `overrides` are those that the race began with and those of the choice; `groups` are the names of config groups;
    `command` trains with the experiment.
    Raises ConfigError for a folder that cannot be written.
    """
    path = _tuned_path(into, name)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(tuned_text(overrides, advice, set(groups), command), encoding="utf-8")
    except OSError as error:
        raise _unwritable(into, str(error.strerror)) from error
    return path


def _tuned_path(into: Path, name: str) -> Path:
    return into / TUNED_FOLDER / f"{name}.yaml"


def _unwritable(into: Path, problem: str) -> ConfigError:
    return ConfigError(f"hydra.sweeper.into = {into}: {problem}; give a config directory that can be written")


def tuned_text(overrides: Sequence[str], advice: Advice, groups: set[str], command: str) -> str:
    """The text of the experiment.

    It includes the experiments that the race began with as files: Hydra ignores a choice of the group `experiment` in a
    file of this group. A file takes no setting away: a deletion (`~NAME`) is left out.
    """
    assert advice.choice is not None
    experiments = [f"/{EXPERIMENT}/{name}" for name in _experiments(overrides)]
    choices: list[dict[str, Any]] = []
    settings: Any = OmegaConf.create()
    for typed in overrides:
        override = OverridesParser.create().parse_override(typed)
        name = override.get_key_element().lstrip("+")
        if override.is_delete() or name == EXPERIMENT:
            continue
        if name in groups:
            choices.append({f"override /{name}": override.value()})
        else:
            OmegaConf.update(settings, name, override.value())
    job = _last_measured(advice.choice.jobs)
    settings.tuned = {"device": job.device_name, "torch": job.torch_version}
    comments = [advice_sentence(advice), f"Trains: {command}", *_evidence(advice)]
    lines = ["# @package _global_"]
    lines += [f"# {clean(comment)}" for comment in comments]
    if experiments or choices:
        lines.append(OmegaConf.to_yaml(OmegaConf.create({"defaults": [*experiments, *choices, "_self_"]})))
    lines.append(OmegaConf.to_yaml(settings))
    return "\n".join(lines)


def _experiments(overrides: Sequence[str]) -> list[str]:
    """The names of the experiments that the last override of `experiment` chooses: none, one, or several."""
    value: Any = None
    for typed in overrides:
        override = OverridesParser.create().parse_override(typed)
        if override.get_key_element().lstrip("+") == EXPERIMENT and not override.is_delete():
            value = override.value()
    if value is None:
        return []
    if isinstance(value, list):
        return [str(name) for name in value]
    return [str(value)]


def _evidence(advice: Advice) -> list[str]:
    """A line for each arm: its figures, or why it has none."""
    lines = [f"Figures ({advice.goal}), a process each, lower is better:"]
    for tried in advice.tried:
        figures = [f"{job.figure:.5g}" for job in tried.jobs if job.figure is not None]
        lines.append(f"  {tried.label}: {' '.join(figures) or tried.reason}")
    return lines


def _last_measured(jobs: Sequence[Measurement]) -> Measurement:
    measured = [job for job in jobs if job.device_name is not None]
    return measured[-1]
