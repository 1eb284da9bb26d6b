"""What the row of a job says of its end, where the job could not say so."""

import pytest
from omegaconf import OmegaConf

from trainkit.results.files import write_row
from trainkit.results.ranks import RankReport, write_report
from trainkit.results.row import Row
from trainkit.sweep.job import final_row
from trainkit.sweep.plan import Job, Sweep

LOST = "rank 1, step 4 (epoch 0): its process was lost (killed, or out of memory)"


@pytest.mark.parametrize(("returncode", "reason"), [(1, LOST), (-9, "torchrun was killed by SIGKILL")])
def test_a_torchrun_that_is_killed_is_the_cause_of_the_end_of_its_ranks(returncode, reason, tmp_path):
    write_row(tmp_path, Row(run_id="run", status="interrupted"))
    write_report(tmp_path, RankReport(1, "a", "here", pid=1, time=1.0, place="step 4 (epoch 0)"))
    config = OmegaConf.create()
    sweep = Sweep("s", tmp_path, config, timeout_s=None, repeats=1, slots=())
    job = Job([], config, nproc_per_node=2, label="", repeat=0, number="[1/1]")
    row = final_row(sweep, job, tmp_path, returncode, stopped_by=None)
    assert (row.status, row.error) == ("failed", reason)
