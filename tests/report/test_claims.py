"""What the pages say of the rows behind a claim."""

from dataclasses import replace

from tests.sweeps import ops_row
from trainkit.report.claims import commands_of


def test_the_command_of_rows_has_the_jobs_that_ran_side_by_side():
    called = replace(ops_row(1, 2.0, 0, kind="forward"), overrides=["model.num_ops=1", "experiment=studies/pipeline"])
    beside = replace(called, num_parallel_jobs=2)
    assert commands_of([called, beside, replace(beside, kind="train")]) == [
        "`python scripts/bench.py -m experiment=studies/pipeline`",
        "`python scripts/bench.py -m experiment=studies/pipeline hydra.launcher.parallel=2`",
        "`python train.py -m experiment=studies/pipeline hydra.launcher.parallel=2`",
    ]


def test_the_command_of_rows_has_what_was_typed_for_all_of_them():
    study = ["model.num_ops=1", "experiment=studies/modes"]
    first = replace(ops_row(1, 2.0, 0), overrides=[*study, "compile.cache=cold", "model.width=8"])
    second = replace(first, overrides=[*study, "compile.cache=cold", "model.width=16"])
    assert commands_of([first, second]) == ["`python train.py -m experiment=studies/modes compile.cache=cold`"]
