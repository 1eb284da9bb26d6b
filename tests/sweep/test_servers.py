"""The servers of a sweep's jobs: how many start at once, and that nothing imports while a job runs."""

import os
import select
import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from tests.sweeps import ROW
from trainkit.results.files import write_row
from trainkit.results.row import Row
from trainkit.sweep import servers, sweep
from trainkit.sweep.forkserver import Forkserver
from trainkit.sweep.job import new_run_dir
from trainkit.sweep.plan import Job, Sweep, SweptSetting
from trainkit.sweep.slots import Slot

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs Linux: a fork does not go well elsewhere")
SETTINGS = ("compile.mode=eager", "compile.mode=default")


def sweep_in(folder: Path, repeats: int = 1, num_slots: int = 1) -> Sweep:
    """A sweep whose servers import nothing, as Hydra sets its jobs' environment."""
    config = OmegaConf.create({"job": {"kind": "train"}, "model": {}, "hydra": {"job": {"env_set": {"A": "1"}}}})
    return Sweep("s", folder, config, None, repeats, (Slot(),) * num_slots)


@pytest.fixture
def lock(tmp_path: Path) -> Iterator[int]:
    """The number of a file that servers inherit."""
    number = os.open(tmp_path, os.O_RDONLY)
    yield number
    os.close(number)


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """(repeats, slots, settings) -> the slots of the servers that a sweep starts at once, and the jobs of each server.
    The jobs are made up."""
    started: list[list[int]] = []
    jobs: list[tuple[Forkserver, str, int]] = []

    def start_servers(sweep: Sweep, slot_numbers: Sequence[int], lock: int) -> AbstractContextManager[list[Forkserver]]:
        started.append(list(slot_numbers))
        return servers.start_servers(sweep, slot_numbers, lock)

    def run_job(sweep: Sweep, job: Job, run_dir: Path, server: Forkserver) -> tuple[Row, bool]:
        jobs.append((server, job.label, job.repeat))
        row = replace(ROW, run_id=f"s/{run_dir.name}", overrides=job.overrides, repeat=job.repeat)
        write_row(run_dir, row)
        return row, False

    def run_side_by_side(sweep: Sweep, jobs: Sequence[Job], servers: Sequence[Forkserver]) -> Iterator[tuple[Job, Row]]:
        for number, job in enumerate(jobs):
            row, _ = run_job(sweep, job, new_run_dir(sweep.folder, job.label), servers[number % len(servers)])
            yield job, row

    def swept(repeats: int, num_slots: int = 1, settings: Sequence[str] = SETTINGS):
        started.clear()
        jobs.clear()
        of_sweep = sweep_in(tmp_path / "s", repeats, num_slots)
        swept_settings = [SweptSetting([setting], of_sweep.config, None) for setting in settings]
        sweep.run_sweep(of_sweep, swept_settings, reports=False)
        return list(started), list(jobs)

    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: range(2))
    monkeypatch.setattr(sweep, "handle_signals", sweep.StopSignal)
    monkeypatch.setattr(sweep, "start_servers", start_servers)
    monkeypatch.setattr(sweep, "run_job", run_job)
    monkeypatch.setattr(sweep, "run_side_by_side", run_side_by_side)
    return swept


def test_the_servers_of_three_repeats_start_at_once_and_each_runs_a_setting_once(run):
    started, jobs = run(repeats=4)
    assert started == [[0, 0, 0], [0]]
    assert [(label, repeat) for _, label, repeat in jobs] == [(label, n) for n in range(4) for label in SETTINGS]
    by_repeat = [{server for server, _, of in jobs if of == repeat} for repeat in range(4)]
    assert [len(of_repeat) for of_repeat in by_repeat] == [1] * 4
    assert len(set.union(*by_repeat)) == 4


def test_servers_start_for_what_is_missing_alone(run, capsys):
    run(repeats=1)
    started, jobs = run(repeats=2)
    assert started == [[0]]
    assert {repeat for _, _, repeat in jobs} == {1}
    started, jobs = run(repeats=2)
    assert (started, jobs) == ([], [])
    assert capsys.readouterr().out.count("finished before") == 2 + 4


def test_each_lap_begins_with_another_slot(run):
    """With more slots than servers that start at once, a lap has one in each of its slots."""
    started, jobs = run(repeats=3, num_slots=2)
    assert started == [[0, 1], [1, 0], [0, 1]]
    assert len({server for server, _, _ in jobs}) == 6
    started, _ = run(repeats=1, num_slots=4, settings=["compile.mode=reduce-overhead"])
    assert started == [[0]]


def test_a_server_that_was_killed_while_it_waited_is_started_again_before_its_lap(lock, tmp_path):
    with servers.start_servers(sweep_in(tmp_path), [0, 0], lock) as (first, second):
        second._process.kill()
        second._process.wait()
        servers.revive([second])
        assert second._process.poll() is None
        assert select.select([first, second], [], [], 0)[0] == [first, second]


def test_what_an_earlier_start_has_left_is_removed(lock, tmp_path):
    of_sweep = sweep_in(tmp_path)
    left = servers.scratch_folder(of_sweep, 5)
    (left / "job").mkdir(parents=True)
    with servers.start_servers(of_sweep, [0], lock):
        assert not left.exists()


@pytest.mark.parametrize(("num_cores", "num_servers"), [(1, 3), (2, 3), (8, 4), (64, 6)])
def test_machines_with_many_cores_start_more_servers(num_cores: int, num_servers: int, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: range(num_cores))
    assert servers.num_servers_at_once() == num_servers


def test_all_servers_have_imported_before_a_job_is_measured_and_end_together(lock, tmp_path):
    with servers.start_servers(sweep_in(tmp_path, num_slots=2), [0, 1, 1], lock) as started:
        readable, _, _ = select.select(started, [], [], 0)
        assert readable == started
        processes = [server._process for server in started]
    assert all(process.poll() is not None for process in processes)
