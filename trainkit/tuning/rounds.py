"""The rounds of a race, as it decided them: a round is kept while the race takes its jobs."""

from collections.abc import Mapping

from trainkit.analysis.advice import Round, arm_label
from trainkit.analysis.race import Standing
from trainkit.results.ledger import Measurement
from trainkit.tuning.forecast import Entry

FINAL = "final"


def add_round(rounds: list[Round], job: Measurement, entries: Mapping[str, Entry], standing: Standing) -> None:
    """Add the state of the race after a job to its rounds, in place of the state after the earlier jobs of that round.
    `entries` are by the names of their arms."""
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
    label = arm_label(job.overrides)
    measured: tuple[str, ...] = (label,)
    if rounds and _goes_on(rounds[-1], label, job.is_final):
        measured += rounds.pop().measured
    name = FINAL
    if not job.is_final:
        earlier = [shown for shown in rounds if shown.name != FINAL]
        name = f"round {len(earlier) + 1}"
    slower = [labels[arm.name] for arm in standing.eliminated if arm not in standing.winners]
    rounds.append(Round(name, leader, intervals, tuple(slower), tuple(excluded), measured))


def _goes_on(last: Round, label: str, is_final: bool) -> bool:
    """Whether a job belongs to the last round: to the final, or to one without a job of its arm."""
    if is_final or last.name == FINAL:
        return is_final and last.name == FINAL
    return label not in last.measured
