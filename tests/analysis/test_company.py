"""Jobs side by side over the same jobs alone."""

import pytest

from tests.sweeps import repeats
from trainkit.analysis.company import steps_over_alone
from trainkit.analysis.comparison import compare
from trainkit.report.notes import comparison_notes

BESIDE = {"num_parallel_jobs": 2}


def test_the_same_setting_alone_and_side_by_side_is_a_ratio():
    rows = repeats("eager", 10.0, 10.2) + repeats("default", 8.0, 8.1)
    rows += repeats("eager", 11.0, 11.2, **BESIDE, num_devices=1)
    alone, beside = sorted(compare(rows).groups, key=lambda group: group.num_parallel_jobs)
    (step,) = steps_over_alone(beside, [alone, beside])
    assert (step.candidate.label, step.ratio.value) == ("eager", pytest.approx(1.1, rel=0.01))
    assert step.ratio.low < step.ratio.value < step.ratio.high
    notes = comparison_notes([alone, beside])
    assert "Their steps over those of the same settings alone: 1.10x [" in notes.by_group[1][-1]
    assert not any("alone" in note for note in notes.by_group[0])


def test_another_work_or_machine_is_no_measure_of_the_cost():
    rows = repeats("eager", 11.0, 11.2, **BESIDE)
    for other in ({"batch_size": 7}, {"device_name": "another"}, {"num_parallel_jobs": 3}):
        groups = compare(rows + repeats("eager", 10.0, 10.2, **other)).groups
        (beside,) = [group for group in groups if group.num_parallel_jobs == 2]
        assert steps_over_alone(beside, groups) == []
        assert comparison_notes([beside]).shared[-1].endswith("hydra.launcher.parallel=1 show what that costs.")
