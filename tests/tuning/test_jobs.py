"""The jobs of a race: when each must end, and which rows of the folder are its own."""

import os
import select
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from omegaconf import OmegaConf

from tests.sweeps import ROW
from tests.tuning.machine import IDENTITY
from trainkit.results.files import write_row
from trainkit.results.ledger import Ledger
from trainkit.results.row import Row
from trainkit.sweep import servers
from trainkit.sweep.forkserver import Forkserver
from trainkit.sweep.job import Deadline
from trainkit.sweep.plan import Sweep
from trainkit.sweep.slots import Slot
from trainkit.sweep.sweep import StopSignal
from trainkit.tuning import jobs
from trainkit.tuning.jobs import JobRunner
from trainkit.tuning.measuring import BUDGET_END, BUDGET_SHARE, JobRequest

OVERRIDES = ("compile.mode=eager",)
REQUEST = JobRequest("eager", OVERRIDES, repeat=0, is_final=False, check=False, timeout_s=30.0, budget_left_s=60.0)
MADE = replace(ROW, run_id="race/made", overrides=list(OVERRIDES))


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """The limits and the servers of the jobs that are run, and when servers were started; each leaves the row MADE. The
    servers import nothing."""
    limits: list[dict[str, Any]] = []
    servers_s = []
    scratch = tmp_path_factory.mktemp("scratch")

    def forkserver_of(sweep: Sweep, slot: Slot, number: int, lock: int) -> Forkserver:
        servers_s.append(time.monotonic())
        return Forkserver([], dict(os.environ), scratch / str(number), lock)

    def run_job(sweep: Sweep, job, run_dir: Path, server, deadline: Deadline | None = None) -> tuple[Row, bool]:
        limit = {"timeout_s": sweep.timeout_s, "source": sweep.timeout_source, "deadline": deadline, "server": server}
        limits.append(limit | {"servers_s": servers_s[0]})
        return MADE, False

    monkeypatch.setattr(jobs, "run_job", run_job)
    monkeypatch.setattr(servers, "forkserver_of", forkserver_of)
    monkeypatch.setattr(jobs, "handle_signals", StopSignal)
    return limits


def runner(folder: Path, timeout_s: float | None = None) -> JobRunner:
    plan: Any = SimpleNamespace(job_overrides=lambda overrides, repeat, check: list(overrides), nproc_per_node=None)
    config = OmegaConf.create({"job": {"kind": "train"}, "model": {}})
    sweep = Sweep(folder.name, folder, config, timeout_s, 1, (Slot(),))
    return JobRunner(plan, sweep, lambda overrides: config)


def test_the_end_of_the_budget_counts_from_the_request_and_a_share_from_the_start(made: list[dict], tmp_path: Path):
    with runner(tmp_path) as running:
        requested_s = time.monotonic()
        running.measure(replace(REQUEST, budget_left_s=40.0))
    (limits,) = made
    assert (limits["timeout_s"], limits["source"]) == (30.0, BUDGET_SHARE)
    assert requested_s <= limits["deadline"].begin_s <= limits["servers_s"]
    assert (limits["deadline"].limit_s, limits["deadline"].source) == (40.0, BUDGET_END)


def test_a_shorter_limit_of_the_users_does_not_outlast_the_budget(made: list[dict], tmp_path: Path):
    with runner(tmp_path, timeout_s=20.0) as running:
        requested_s = time.monotonic()
        running.measure(replace(REQUEST, budget_left_s=30.0))
    assert (made[0]["timeout_s"], made[0]["source"]) == (20.0, "hydra.launcher.timeout_s")
    assert requested_s <= made[0]["deadline"].begin_s <= made[0]["servers_s"]
    assert made[0]["deadline"].limit_s == 30.0


def test_a_row_without_a_ledger_is_of_another_race(made: list[dict], tmp_path: Path):
    """The ledger of a race on another device was moved away, and its rows were not."""
    run_dir = tmp_path / "000-job"
    run_dir.mkdir()
    write_row(run_dir, replace(MADE, run_id="race/000-job"))
    with runner(tmp_path) as running:
        assert running.measure(REQUEST).row.run_id == "race/made"
    Ledger(tmp_path, IDENTITY)
    with runner(tmp_path) as running:
        assert running.measure(REQUEST).row.run_id == "race/000-job"


@pytest.mark.parametrize(("num_cores", "num_servers"), [(1, 3), (8, 4), (64, 6)])
def test_the_repeats_of_an_arm_are_from_other_servers_of_which_several_start_at_once(
    num_cores: int, num_servers: int, made: list[dict], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """All have imported before a job runs, whose time is without that."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: range(num_cores))
    clock_s = [0.0]
    monkeypatch.setattr(jobs, "time", SimpleNamespace(monotonic=lambda: clock_s[0]))
    ready: dict[Forkserver, bool] = {}
    wait_for_imports = Forkserver.wait_for_imports

    def wait_and_count(server: Forkserver, timeout_s: float | None = None) -> None:
        wait_for_imports(server, timeout_s)
        if server not in ready:
            clock_s[0] += 5
            readable, _, _ = select.select([server], [], [], 0)
            ready[server] = readable == [server]

    monkeypatch.setattr(Forkserver, "wait_for_imports", wait_and_count)
    default = replace(REQUEST, name="default", overrides=("compile.mode=default",))
    num_ready, waits, results = [], [], []
    with runner(tmp_path) as running:
        for request in (REQUEST, default, *[REQUEST] * num_servers):
            waits.append(running.waits_for_imports(request.name))
            results.append(running.measure(request))
            num_ready.append(len(ready))
    first, of_default, *later = [job["server"] for job in made]
    assert of_default is first
    assert len({first, *later}) == num_servers + 1
    assert num_ready == [*[num_servers] * (num_servers + 1), 2 * num_servers]
    assert all(ready.values())
    assert waits == [True, *[False] * num_servers, True]
    assert [result.imports_s for result in results] == [5.0 * num_servers * is_waiting for is_waiting in waits]
    assert all(result.wall_s == 0 for result in results)
