"""The rounds of a race, as it decided them: a round is kept while the race takes its jobs."""

from collections.abc import Mapping

from trainkit.analysis.advice import Round, arm_label
from trainkit.analysis.race import Standing
from trainkit.results.ledger import Measurement
from trainkit.tuning.forecast import Entry


def add_round(rounds: list[Round], job: Measurement, entries: Mapping[str, Entry], standing: Standing) -> None:
    """Add the state of the race after a job to its rounds, in place of the state after the earlier jobs of that round.
    `entries` are by the names of their arms."""
    name = "final" if job.is_final else f"round {job.repeat + 1}"
    labels = {}
    excluded = []
    for arm_name, entry in entries.items():
        labels[arm_name] = arm_label(entry.settings.overrides)
        if entry.jobs and entry.arm.excluded is not None:
            excluded.append(labels[arm_name])
    intervals = {labels[arm_name]: interval for arm_name, interval in standing.times_as_good.items()}
    leader = ""
    if standing.leader is not None:
        leader = labels[standing.leader.name]
    if rounds and rounds[-1].name == name:
        rounds.pop()
    slower = [labels[arm.name] for arm in standing.eliminated if arm not in standing.winners]
    rounds.append(Round(name, leader, intervals, tuple(slower), tuple(excluded)))
