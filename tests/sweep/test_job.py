"""What the row of a job says of its end, where the job could not say so."""

import os
import sys
import time
from dataclasses import replace

import pytest
from omegaconf import OmegaConf

from trainkit.results.files import write_row
from trainkit.results.ranks import RankReport, write_report
from trainkit.results.row import Row
from trainkit.sweep.forkserver import Forkserver
from trainkit.sweep.job import Deadline, final_row, new_run_dir, run_job
from trainkit.sweep.plan import Job, Sweep
from trainkit.sweep.slots import Slot

LOST = "rank 1, step 4 (epoch 0): its process was lost (killed, or out of memory)"


@pytest.mark.parametrize(("returncode", "reason"), [(1, LOST), (-9, "torchrun was killed by SIGKILL")])
def test_a_torchrun_that_is_killed_is_the_cause_of_the_end_of_its_ranks(returncode, reason, tmp_path):
    write_row(tmp_path, Row(run_id="run", status="interrupted"))
    disconnected = {"status": "failed", "reason": "connection reset", "failed_at": 2.0, "follows": True}
    for rank, told in enumerate((disconnected, {})):
        write_report(tmp_path, RankReport(rank, "a", "here", pid=1, time=1.0, place="step 4 (epoch 0)", **told))
    config = OmegaConf.create()
    sweep = Sweep("s", tmp_path, config, timeout_s=None, repeats=1, slots=())
    job = Job([], config, nproc_per_node=2, label="", repeat=0, number="[1/1]")
    row = final_row(sweep, job, tmp_path, returncode, stopped_by=None)
    assert (row.status, row.error) == ("failed", reason)


IMPORTS_S = 1.5


@pytest.fixture
def slow_server(tmp_path, monkeypatch):
    """A server whose imports take a while, and a sweep whose jobs sleep for a minute."""
    (tmp_path / "slow.py").write_text(f"import time; time.sleep({IMPORTS_S})")
    (tmp_path / "job.py").write_text("import time; time.sleep(60)")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "argv", [str(tmp_path / "job.py")])
    hydra = {
        "job": {"config_name": "config"},
        "runtime": {"config_sources": [], "choices": {"data": "digits", "objective": "cross_entropy"}},
        "overrides": {"hydra": []},
    }
    config = OmegaConf.create({"hydra": hydra, "model": {}, "job": {"kind": "train", "model": "net"}})
    sweep = Sweep("s", tmp_path, config, timeout_s=0.5, repeats=1, slots=(Slot(),))
    with Forkserver(["slow"], dict(os.environ), tmp_path / "scratch") as server:
        yield server, sweep, Job([], config, nproc_per_node=None, label="", repeat=0, number="[1/1]")


@pytest.mark.skipif(sys.platform != "linux", reason="jobs are forked on Linux alone")
@pytest.mark.parametrize("left_s", [IMPORTS_S / 3, IMPORTS_S + 1], ids=["as it imports", "as it runs"])
def test_a_deadline_holds_for_the_imports_of_the_server_too(left_s, slow_server, tmp_path):
    server, sweep, job = slow_server
    sweep = replace(sweep, timeout_s=60)
    started_s = time.monotonic()
    row, is_interrupted = run_job(sweep, job, new_run_dir(tmp_path, ""), server, Deadline(left_s, "the end"))
    assert left_s <= time.monotonic() - started_s < sweep.timeout_s
    assert (row.status, is_interrupted) == ("timeout", False)
    assert row.error == f"stopped after {round(left_s, 1):g} s (the end)"


@pytest.mark.skipif(sys.platform != "linux", reason="jobs are forked on Linux alone")
def test_without_a_deadline_the_limit_of_a_job_begins_with_it(slow_server, tmp_path):
    server, sweep, job = slow_server
    started_s = time.monotonic()
    row, _ = run_job(sweep, job, new_run_dir(tmp_path, ""), server)
    assert time.monotonic() - started_s > IMPORTS_S + 0.5
    assert row.status == "timeout"
    # The server goes on after a job that it did not come to.
    run_job(sweep, job, new_run_dir(tmp_path, ""), server, Deadline(0.0, "the end"))
    assert server.start([str(tmp_path / "slow.py")], tmp_path / "log").wait(60) == 0
