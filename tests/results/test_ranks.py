"""The first cause among what the ranks of a run report."""

from dataclasses import replace

from trainkit.results.ranks import Cause, RankReport, first_cause, read_reports, remove_report, write_report

RUNS = RankReport(0, "a", "host", 10, time=5.0, place="step 3 (epoch 0)")
KILLED = RankReport(1, "a", "host", 11, time=4.0, place="step 2 (epoch 0)")
LOST_CONNECTION = replace(RUNS, status="failed", reason="gloo", failed_at=6.0, follows=True)
RAISED = replace(KILLED, status="oom", reason="no memory", failed_at=7.0)
STOPPED = replace(RUNS, status="interrupted", reason="stopped by SIGTERM", failed_at=6.5)


def is_killed(report):
    return report.rank == KILLED.rank


def test_a_rank_that_says_why_comes_before_one_that_lost_its_connection():
    assert first_cause([LOST_CONNECTION, RAISED], is_killed) == Cause("oom", "no memory")
    assert first_cause([LOST_CONNECTION, KILLED], lambda report: False) == Cause("failed", "gloo")


def test_the_first_to_fail_is_the_cause():
    assert first_cause([STOPPED, RAISED], is_killed) == Cause("interrupted", "stopped by SIGTERM")
    assert first_cause([replace(STOPPED, failed_at=8.0), RAISED], is_killed) == Cause("oom", "no memory")


def test_a_rank_without_a_word_was_lost_where_the_others_are():
    for other in (RUNS, LOST_CONNECTION):
        cause = first_cause([other, KILLED], is_killed)
        reason = "rank 1, step 3 (epoch 0): its process was lost (killed, or out of memory)"
        assert cause == Cause("failed", reason)
    assert first_cause([RUNS, KILLED], lambda report: False) is None
    assert first_cause([], is_killed) is None


def test_reports_of_an_earlier_start_and_damaged_ones_are_left_out(tmp_path):
    write_report(tmp_path, replace(RUNS, rank=2, launch="earlier", time=1.0))
    write_report(tmp_path, KILLED)
    write_report(tmp_path, RUNS)
    (tmp_path / "ranks" / "3.json").write_text("{")
    assert read_reports(tmp_path) == [RUNS, KILLED]


def test_the_last_rank_removes_the_folder(tmp_path):
    write_report(tmp_path, RUNS)
    write_report(tmp_path, KILLED)
    remove_report(tmp_path, RUNS.rank)
    assert read_reports(tmp_path) == [KILLED]
    remove_report(tmp_path, KILLED.rank)
    assert not list(tmp_path.iterdir())
