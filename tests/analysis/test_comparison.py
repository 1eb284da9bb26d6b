"""Rows in, comparison out: the order of candidates, and the recommended one."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.sweeps import EAGER, candidates_of, repeats, small_row
from trainkit.analysis.comparison import Comparison, compare
from trainkit.analysis.grouping import candidate_key, group_key
from trainkit.report.recommendations import recommendation
from trainkit.results.row import Row


def test_the_fastest_setting_comes_first():
    rows = [small_row(step_ms=10.0), small_row("max-autotune", 4.0), small_row("default", 6.0)]
    assert list(candidates_of(compare(rows))) == ["max-autotune", "default", "eager"]


def test_each_model_is_compared_with_its_own_eager():
    rows = [
        small_row(model=model, mode=mode, step_ms=ms)
        for model, eager_ms, default_ms in (("a", 10.0, 5.0), ("b", 9.0, 3.0))
        for mode, ms in (("eager", eager_ms), ("default", default_ms))
    ]
    groups = {group.model: group.candidates[0] for group in compare(rows).groups}
    speedups = {model: setting.speedup.value for model, setting in groups.items()}
    assert speedups == pytest.approx({"a": 2.0, "b": 3.0})
    assert groups["a"].label == "default"


@pytest.mark.parametrize(("planned", "advised"), [(None, "default"), (9_000, "eager"), (11_000, "default")])
def test_what_is_advised_depends_on_the_steps_planned(planned, advised):
    slower = repeats("max-autotune", 12.0, 12.1, 11.9, compile_time_s=1.0)
    (group,) = compare([*EAGER, *repeats("default", 6.0, 6.01, 5.99, compile_time_s=40.0), *slower], planned).groups
    assert (group.candidates[0].label, group.recommended.label) == ("default", advised)
    if planned is not None:
        assert group.recommended.total_time_s == pytest.approx(min(planned * 0.01, 40 + planned * 0.006), rel=1e-3)


def test_of_settings_that_are_alike_the_one_that_compiles_soonest_is_advised():
    slow = repeats("max-autotune", 5.99, 6.0, 6.01, compile_time_s=300.0)
    rows = [*EAGER, *repeats("default", 6.0, 6.01, 5.99, compile_time_s=40.0), *slow]
    (group,) = compare(rows).groups
    assert group.recommended.label == "default"
    (group,) = compare([*rows, *repeats("max-autotune-no-cudagraphs", 5.95, 5.951, 5.949, compile_time_s=300.0)]).groups
    assert (group.candidates[0].label, group.recommended.label) == ("max-autotune-no-cudagraphs", "default")
    assert recommendation(group).endswith("max-autotune-no-cudagraphs is 0.8 % faster, and compiles longer.")
    (group,) = compare([*rows, *repeats("reduce-overhead", 4.0, 4.01, 3.99, compile_time_s=400.0)]).groups
    assert group.recommended.label == "reduce-overhead"


def test_eager_is_advised_where_nothing_is_measurably_faster():
    (group,) = compare([*EAGER, *repeats("default", 10.0, 10.01, 9.99, compile_time_s=40.0)]).groups
    assert group.recommended.label == "eager"


def test_a_slow_run_of_eager_does_not_make_eager_the_best_beside_what_is_surely_faster():
    eager = repeats("eager", 28.54, 21.99, 22.01)
    (group,) = compare([*eager, *repeats("default", 15.30, 15.29, 15.30, compile_time_s=25.0)]).groups
    (compiled,) = [candidate for candidate in group.candidates if candidate.label == "default"]
    assert compiled.is_faster
    assert 1 < compiled.speedup.low < 1.1
    assert group.recommended is compiled


def test_what_was_seen_with_a_warmer_cache_than_another_setting_is_not_advised_for_compiling_sooner():
    def found(mode: str, caches: str, cost: float) -> list[Row]:
        of = repeats(mode, 5.0, 5.01, compile_time_s=cost)
        return [replace(one, cache_found=cache) for one, cache in zip(of, caches.split(), strict=True)]

    mixed, warm = found("default", "mixed warm", 20.0), found("reduce-overhead", "warm warm", 2.0)
    (group,) = compare([*EAGER, *mixed, *warm]).groups
    assert group.recommended.label == "default"
    (group,) = compare([*EAGER, *(replace(one, cache_found="warm") for one in mixed), *warm]).groups
    assert group.recommended.label == "reduce-overhead"


def test_no_rows_give_an_empty_comparison():
    assert compare([]) == Comparison(groups=(), dropped=())


@st.composite
def rows_of_a_sweep(draw: st.DrawFn) -> list[Row]:
    """Up to 12 rows of a few works, machines and settings, some of which a comparison drops."""
    row = st.builds(
        small_row,
        mode=st.sampled_from(["eager", "default", "max-autotune"]),
        step_ms=st.sampled_from([None, 5.0, 10.0, 10.5]),
        model=st.sampled_from(["a", "b"]),
        status=st.sampled_from(["ok", "ok", "oom"]),
        compile_dynamic=st.sampled_from([None, True]),
        precision=st.sampled_from(["32-true", "bf16-mixed"]),
        overrides=st.lists(st.sampled_from(["seed=1", "optimizer.lr=0.1", "data.num_workers=2", "model.width=8"])),
        device_name=st.sampled_from(["NVIDIA H100", "NVIDIA A100"]),
        check_passed=st.sampled_from([None, True, False]),
        cache_found=st.sampled_from([None, "cold", "warm"]),
        schema_version=st.sampled_from([2, 3]),
    )
    rows = draw(st.lists(row, max_size=12))
    return [replace(row, run_id=str(number)) for number, row in enumerate(rows)]


def places_of(comparison: Comparison) -> list[tuple[str, frozenset[str]]]:
    """The label and the runs of each candidate, and the reason and the runs of each dropped setting."""
    places = []
    for group in comparison.groups:
        for candidate in group.candidates:
            places.append((candidate.label, frozenset(row.run_id for row in candidate.rows)))
    for dropped in comparison.dropped:
        places.append((dropped.reason, frozenset(row.run_id for row in dropped.rows)))
    return places


@given(rows_of_a_sweep())
def test_every_row_is_in_exactly_one_place(rows):
    runs = [run for _, place in places_of(compare(rows)) for run in place]
    assert sorted(runs) == sorted(row.run_id for row in rows)


@given(rows_of_a_sweep(), st.randoms())
def test_the_order_of_rows_decides_nothing(rows, random):
    shuffled = random.sample(rows, len(rows))
    assert set(places_of(compare(shuffled))) == set(places_of(compare(rows)))


@given(rows_of_a_sweep())
def test_the_labels_of_a_group_are_distinct(rows):
    for group in compare(rows).groups:
        labels = [candidate.label for candidate in group.candidates]
        assert len(set(labels)) == len(labels)


@given(rows_of_a_sweep())
def test_repeats_did_the_same_work_on_the_same_machine(rows):
    for group in compare(rows).groups:
        members = [row for candidate in group.candidates for row in candidate.rows]
        assert len({group_key(row) for row in members}) == 1
        for candidate in group.candidates:
            assert len({candidate_key(row) for row in candidate.rows}) == 1
