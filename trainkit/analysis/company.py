"""What it costs to run jobs side by side: the steps of the same settings side by side and alone."""

from collections.abc import Hashable, Iterable
from dataclasses import dataclass

from trainkit.analysis import grouping
from trainkit.analysis.candidates import Candidate
from trainkit.analysis.comparison import Group
from trainkit.analysis.machines import card_of, machine_of, machines_of, step_ratio
from trainkit.results.row import Row
from trainkit.stats import Ratio


@dataclass(frozen=True)
class StepOverAlone:
    """The step time of a candidate side by side with other jobs over that of the same candidate alone: card by card, or
    machine by machine if no card has both."""

    candidate: Candidate
    ratio: Ratio
    on_same_card: bool


def steps_over_alone(group: Group, groups: Iterable[Group]) -> list[StepOverAlone]:
    """The candidates of a group that ran alone, too, in one of the groups, on the same kind of machine."""
    alone = {}
    for other in groups:
        if other.num_parallel_jobs == 1:
            for candidate in other.candidates:
                alone[_setting_of(candidate)] = candidate
    steps = []
    for candidate in group.candidates:
        counterpart = alone.get(_setting_of(candidate))
        if counterpart is not None:
            cards = machines_of(candidate.rows, card_of) & machines_of(counterpart.rows, card_of)
            place = card_of if cards else machine_of
            over_alone = step_ratio(candidate.rows, counterpart.rows, place)
            steps.append(StepOverAlone(candidate, over_alone, on_same_card=bool(cards)))
    return steps


def _setting_of(candidate: Candidate) -> Hashable:
    row: Row = candidate.rows[0]
    facts = grouping.requested(row) | grouping.machine_facts(row)
    del facts["parallel_jobs"]
    del facts["num_devices"]  # those that a job sees: side by side each is given its own
    return grouping.hashable(facts)
