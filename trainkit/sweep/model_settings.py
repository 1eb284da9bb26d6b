"""Settings that only some networks of a sweep have."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain

from omegaconf import DictConfig

ADDED = "++model."  # Hydra's word for a setting that is changed where it exists, and added where it does not


@dataclass(frozen=True)
class FittedJobs:
    """The overrides of each job of a sweep, and a line for each setting that a network lacks."""

    overrides: list[list[str]]
    notes: list[str]


def fit_to_networks(
    job_overrides: Sequence[Sequence[str]], load_config: Callable[[list[str]], DictConfig]
) -> FittedJobs:
    """Leave `++model.NAME=VALUE` out of the jobs whose network has no setting NAME, if another network has it.

    Jobs that are equal then are one job. A setting that no network has is added to all, as in Hydra.
    """
    added = {_name(override) for override in chain.from_iterable(job_overrides)} - {""}
    if not added:
        return FittedJobs([list(overrides) for overrides in job_overrides], [])
    networks = []
    settings: dict[str, set[str]] = {}
    for overrides in job_overrides:
        config = load_config([override for override in overrides if not _name(override)])
        network = config.hydra.runtime.choices.model
        networks.append(network)
        settings[network] = {str(name) for name in config.model}
    all_names = set().union(*settings.values())
    fitted: dict[tuple[str, ...], None] = {}
    notes: dict[str, None] = {}
    for network, overrides in zip(networks, job_overrides, strict=True):
        lacking = added & (all_names - settings[network])
        for name in sorted(lacking):
            notes[f"model.{name}: no setting of {network}, which is run without it"] = None
        fitted[tuple(override for override in overrides if _name(override) not in lacking)] = None
    return FittedJobs([list(overrides) for overrides in fitted], list(notes))


def _name(override: str) -> str:
    """The name of a setting that `++model.` adds or changes; empty for any other override."""
    if not override.startswith(ADDED):
        return ""
    return override.removeprefix(ADDED).partition("=")[0].partition(".")[0]
