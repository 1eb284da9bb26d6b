"""The time of a start of a race: all of it counts, whatever ends it."""

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Self

import pytest
from omegaconf import DictConfig, OmegaConf

from tests.tuning.test_plan import plan
from trainkit.results.ledger import Ledger
from trainkit.tuning import advise
from trainkit.tuning.measuring import JobRequest

AGE_S, PAGE_S, CLOSING_S = 100.0, 0.3, 0.3


class Runner:
    """In the place of a JobRunner: the user interrupts the first job, and the server takes a while to end."""

    def __init__(self, *settings: object):
        self.stop = SimpleNamespace(exit_status=130)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        time.sleep(CLOSING_S)

    def waits_for_imports(self, arm: str) -> bool:
        return True

    def measure(self, request: JobRequest) -> None:
        raise KeyboardInterrupt


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DictConfig:
    monkeypatch.setattr(advise, "JobRunner", Runner)
    monkeypatch.setattr(advise, "process_age_s", lambda: AGE_S)
    return OmegaConf.create({"sweep": "race", "hydra": {"sweep": {"dir": str(tmp_path)}, "overrides": {"hydra": []}}})


def used_s(folder: Path) -> float:
    return Ledger(folder, plan().identity).used_s


def test_the_page_and_the_end_of_the_server_count(config: DictConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def write_slowly(folder: Path, *arguments: object) -> Path:
        time.sleep(PAGE_S)
        return folder / "race.html"

    monkeypatch.setattr(advise, "write_advice", write_slowly)
    assert advise.advise(plan(), config, lambda overrides: config, timeout_s=None, into=str(tmp_path)) == 130
    assert used_s(tmp_path) >= AGE_S + CLOSING_S + PAGE_S


@pytest.mark.parametrize("part", ["LiveRace", "write_advice"])
def test_a_start_that_is_stopped_before_its_first_job_or_as_it_writes_its_page_counts(
    part: str, config: DictConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def stop(*arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(advise, part, stop)
    with pytest.raises(KeyboardInterrupt):
        advise.advise(plan(), config, lambda overrides: config, timeout_s=None, into=str(tmp_path))
    assert used_s(tmp_path) >= AGE_S + CLOSING_S


def test_a_start_that_is_killed_before_its_first_job_counts(
    config: DictConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    used_at_opening: list[float] = []

    def opening(race: advise.LiveRace, folder: Path) -> str:
        used_at_opening.append(used_s(folder))
        return "race"

    monkeypatch.setattr(advise.LiveRace, "opening", opening)
    advise.advise(plan(), config, lambda overrides: config, timeout_s=None, into=str(tmp_path))
    assert used_at_opening[0] >= AGE_S
