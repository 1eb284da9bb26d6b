"""The facts of settings: bounds, columns, and the values that a config has."""

from dataclasses import fields

import pytest

from trainkit.config.schema import OF_A_STAGE, SETTINGS, RunConfig
from trainkit.config.settings import (
    ABOVE_0,
    BOOLEAN_OR_NULL,
    COUNT_OR_FRACTION,
    COUNT_OR_MINUS_1,
    FINITE,
    MILLISECONDS,
    WHOLE,
    at_least,
    one_of,
    value_of,
)
from trainkit.results.row import Row

NAN, INFINITY = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("bound", "inside", "outside"),
    [
        (at_least(1), [1, 2**40], [0, -1, 1.0, True, "1"]),
        (one_of(True, "auto"), [True, "auto"], [False, "other"]),
        (ABOVE_0, [1, 1e-9, INFINITY], [0, -1.0, NAN, "1"]),
        (FINITE, [0, -1.5], [NAN, INFINITY, -INFINITY]),
        (MILLISECONDS, [1, 0.5], [0, -1.0, INFINITY, NAN]),
        (COUNT_OR_MINUS_1, [-1, 1, 5], [0, -2]),
        (COUNT_OR_FRACTION, [0, 1, 7, 0.0, 0.5, 1.0], [-1, -0.1, 1.5, NAN, INFINITY]),
        (BOOLEAN_OR_NULL, [True, False], ["true", 1.5]),
        (WHOLE, [0, 2**32 - 1], [2**32]),
    ],
    ids=lambda value: getattr(value, "expected", None),
)
def test_a_bound_holds_for_the_values_inside_of_it(bound, inside, outside):
    assert [value for value in inside if not bound.holds(value)] == []
    assert [value for value in outside if bound.holds(value)] == []


def test_every_default_is_in_bounds_and_every_example_too():
    for name, setting in SETTINGS.items():
        for bound in setting.facts.bounds:
            assert setting.default in (None, "???") or bound.holds(setting.default), name
            assert bound.example is None or bound.holds(bound.example), name


def test_every_setting_says_what_it_is_for():
    assert [
        name
        for name, setting in SETTINGS.items()
        if not setting.facts.about and not setting.is_group and name.split(".")[0] not in ("job", "study")
    ] == []


def test_a_column_of_a_setting_is_a_column_of_a_row():
    columns = {declared.name for declared in fields(Row)}
    assert {setting.facts.column for setting in SETTINGS.values()} - {None} <= columns


def test_a_value_is_found_by_its_dotted_name():
    config = RunConfig(data={"batch_size": 4})
    assert value_of(config, "trainer.max_epochs") == 10
    assert value_of(config, "data.batch_size") == 4
    assert value_of(config, "data.path") is None
    assert value_of(config, "study.question") is None


def test_a_stage_may_set_the_network_and_how_it_is_run():
    assert OF_A_STAGE == ["model", "compile", "amp", "trainer.channels_last", "ckpt_path"]


@pytest.mark.parametrize("setting", ["trainer.gradient_clip_val", "trainer.memory_limit_gib"])
def test_a_number_that_is_not_finite_is_refused(setting, compose):
    with pytest.raises(ValueError, match=f"{setting} = inf: expected a finite number"):
        compose(f"{setting}=inf")
