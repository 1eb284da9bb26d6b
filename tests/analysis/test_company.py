"""Jobs side by side over the same jobs alone."""

import pytest

from tests.sweeps import repeats
from trainkit.analysis.company import steps_over_alone
from trainkit.analysis.comparison import compare
from trainkit.report.notes import comparison_notes
from trainkit.results.row import Row

BESIDE = {"num_parallel_jobs": 2}


def test_the_same_setting_alone_and_side_by_side_is_a_ratio():
    rows = repeats("eager", 10.0, 10.2) + repeats("default", 8.0, 8.1)
    rows += repeats("eager", 11.0, 11.2, **BESIDE, num_devices=1)
    alone, beside = sorted(compare(rows).groups, key=lambda group: group.num_parallel_jobs)
    (step,) = steps_over_alone(beside, [alone, beside])
    assert (step.candidate.label, step.ratio.value) == ("eager", pytest.approx(1.1, rel=0.01))
    assert step.ratio.low < step.ratio.value < step.ratio.high
    notes = comparison_notes([alone, beside])
    assert "alone, card by card where a card has runs of both: 1.10x [" in notes.by_group[1][-1]
    assert not any("alone" in note for note in notes.by_group[0])


def side_by_side(alone_ms: dict[int | None, float], beside_ms: dict[int | None, float]) -> list[Row]:
    """Rows of eager, one for each card's step time, alone and side by side."""
    rows = []
    for num_jobs, step_times_ms in ((1, alone_ms), (2, beside_ms)):
        for card, step_ms in step_times_ms.items():
            rows += repeats("eager", step_ms, num_parallel_jobs=num_jobs, machine_id="a", device_index=card)
    return rows


@pytest.mark.parametrize(
    ("alone_ms", "beside_ms", "note"),
    [
        ({0: 31.4}, {0: 31.4, 1: 28.0}, "both: 1.00x (eager)."),
        ({0: 30.0, 1: 20.0}, {0: 33.0, 1: 22.0}, "both: 1.10x [1.10, 1.10] (eager)."),
        ({0: 30.0}, {1: 33.0}, "both: 1.10x (eager; no such card)."),
        ({None: 30.0}, {1: 33.0}, "both: 1.10x (eager; no such card)."),
    ],
)
def test_the_ratio_is_of_runs_on_the_same_card_where_both_have_one(alone_ms, beside_ms, note):
    notes = comparison_notes(compare(side_by_side(alone_ms, beside_ms)).groups)
    assert any(line.endswith(note) for line in notes.by_group[0] + notes.by_group[1])


def test_without_a_common_card_machines_still_have_no_part_in_the_ratio():
    rows = repeats("eager", 10.0, machine_id="a", device_index=0) + repeats("eager", 30.0, machine_id="b")
    rows += repeats("eager", 11.0, machine_id="a", device_index=1, **BESIDE)
    groups = compare(rows).groups
    (beside,) = [group for group in groups if group.num_parallel_jobs == 2]
    (step,) = steps_over_alone(beside, groups)
    assert (step.ratio.value, step.on_same_card) == (pytest.approx(1.1), False)


def test_another_work_or_machine_is_no_measure_of_the_cost():
    rows = repeats("eager", 11.0, 11.2, **BESIDE)
    for other in ({"batch_size": 7}, {"device_name": "another"}, {"num_parallel_jobs": 3}):
        groups = compare(rows + repeats("eager", 10.0, 10.2, **other)).groups
        (beside,) = [group for group in groups if group.num_parallel_jobs == 2]
        assert steps_over_alone(beside, groups) == []
        assert comparison_notes([beside]).shared[-1].endswith("hydra.launcher.parallel=1 show what that costs.")
