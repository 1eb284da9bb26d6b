"""Rows in, pairwise comparisons out."""

from dataclasses import replace

import pytest

from tests.sweeps import OPS, crossing, ops_row
from trainkit.analysis.pairs import compare_pairs
from trainkit.results.row import Row


def test_a_setting_that_only_some_have_tells_them_apart():
    rows = [
        replace(ops_row(1, 2.0, n, compile_mode=mode), overrides=words)
        for mode in ("eager", "default")
        for words in ([], ["model.depth=2"])
        for n in range(2)
    ]
    found = compare_pairs(rows, "compile.mode=default", "compile.mode=eager")
    assert [pair.conditions for pair in found] == [{"model.depth": "unset"}, {"model.depth": "2"}]


def test_pairs_stand_in_the_order_of_their_numbers_within_that_of_their_names():
    rows = [
        replace(ops_row(1, 2.0, n, compile_mode=mode), model=model, deadline_ms=deadline_ms)
        for model, deadline_ms in (("net", 20.0), ("net", 5.0), ("big", 5.0), ("net", 10.0))
        for mode in ("eager", "default")
        for n in range(2)
    ]
    found = compare_pairs(rows, "compile.mode=default", "compile.mode=eager")
    in_order = [("net", "5"), ("net", "10"), ("net", "20"), ("big", "5")]
    assert [tuple(pair.conditions.values()) for pair in found] == in_order


def test_what_amp_brings_with_it_is_not_said_beside_the_precision():
    rows = [
        replace(ops_row(1, 2.0, 0, compile_mode=mode), precision=precision, matmul_precision=matmul_precision)
        for mode in ("eager", "default")
        for precision, matmul_precision in (("32-true", "highest"), ("16-mixed", "high"))
    ]
    found = compare_pairs(rows, "compile.mode=default", "compile.mode=eager")
    assert [pair.conditions for pair in found] == [{"amp.precision": "32-true"}, {"amp.precision": "16-mixed"}]


def test_another_field_is_a_ratio_and_dropped_rows_take_no_part():
    rows = [replace(one, status="failed") if "10" in one.overrides[0] else one for one in crossing()]
    choices = "compile.mode=default compile.dynamic=true", "compile.mode=default compile.dynamic=false"
    found = compare_pairs(rows, *choices, column="compile_time_s")
    assert [pair.conditions["model.num_ops"] for pair in found] == ["1", "30"]
    assert all(pair.ratio.value == pytest.approx(1.5) for pair in found)
    assert compare_pairs(rows, "compile.mode=max-autotune", "compile.mode=eager") == []


def test_runs_that_found_the_cache_warm_are_asked_for_by_name():
    cold = [ops_row(1, 2.0, n, compile_mode="default", compile_time_s=10.0, compile_cache="cold") for n in range(2)]
    warm = [replace(one, run_id=f"warm-{one.run_id}", compile_cache="warm", compile_time_s=1.0) for one in cold]
    warm = [replace(one, cache_found=found) for one, found in zip(warm, ("cold", "warm"), strict=True)]
    (pair,) = compare_pairs([*cold, *warm], "cache_found=warm", "compile.cache=cold", "compile_time_s")
    assert pair.ratio.value == pytest.approx(0.1)


def test_what_compiling_costs_is_that_of_the_coldest_repeats():
    def repeats(dynamic: bool, *seconds: float) -> list[Row]:
        found = ("cold", *("warm" for _ in seconds[1:]))
        told = [
            {"compile_time_s": s, "cache_found": f, "compile_cache": "warm"}
            for s, f in zip(seconds, found, strict=True)
        ]
        return [ops_row(1, 2.0, n, compile_mode="default", compile_dynamic=dynamic, **of) for n, of in enumerate(told)]

    rows = [*repeats(True, 40.0, 4.0, 4.0), *repeats(False, 20.0, 3.6, 3.6)]
    choices = "compile.mode=default compile.dynamic=true", "compile.mode=default compile.dynamic=false"
    (pair,) = compare_pairs(rows, *choices, column="compile_time_s")
    assert pair.ratio.value == pytest.approx(2.0)


def test_compile_times_are_compared_in_one_state_of_the_cache():
    def repeats(dynamic: bool, **seconds: float) -> list[Row]:
        rows = []
        for n, (found, compile_s) in enumerate(seconds.items()):
            facts = {"cache_found": found, "compile_cache": "warm", "compile_time_s": compile_s}
            rows.append(ops_row(1, 2.0, n, compile_mode="default", compile_dynamic=dynamic, **facts))
        return rows

    choices = "compile.mode=default compile.dynamic=true", "compile.mode=default compile.dynamic=false"
    rows = [*repeats(True, cold=40.0, warm=4.0), *repeats(False, mixed=9.0, warm=2.0)]
    (pair,) = compare_pairs(rows, *choices, column="compile_time_s")
    assert (pair.choice_values, pair.baseline_values) == ([4.0], [2.0])
    assert pair.notes == ("with a warm cache",)
    assert compare_pairs(rows[:1] + rows[2:], *choices, column="compile_time_s") == []
    emptied = [replace(row, compile_cache="cold") for row in rows]  # what these find they have compiled themselves
    (pair,) = compare_pairs(emptied, *choices, column="compile_time_s")
    assert (pair.choice_values, pair.baseline_values, pair.notes) == ([40.0, 4.0], [9.0, 2.0], ())


def test_runs_with_either_cache_are_repeats_in_steady_steps_and_apart_in_times_of_compiles():
    def repeats(mode: str, step_ms: float, **seconds: float) -> list[Row]:
        rows = []
        for n, (cache, compile_s) in enumerate(seconds.items()):
            facts = {"compile_cache": cache, "compile_time_s": compile_s, "first_answer_s": compile_s}
            rows.append(ops_row(1, step_ms, n, compile_mode=mode, cache_found="cold", **facts))
        return rows

    rows = [*repeats("default", 4.0, warm=10.0, cold=20.0), *repeats("reduce-overhead", 2.0, warm=5.0, cold=30.0)]
    choices = "compile.mode=reduce-overhead", "compile.mode=default"
    (pair,) = compare_pairs(rows, *choices)
    assert (len(pair.choice_rows), len(pair.baseline_rows), pair.conditions) == (2, 2, {})
    times = compare_pairs(rows, *choices, column="compile_time_s")
    assert [(pair.conditions, pair.notes, pair.ratio.value) for pair in times] == [
        ({"compile.cache": "warm"}, ("without these graphs in it",), pytest.approx(0.5)),
        ({"compile.cache": "cold"}, (), pytest.approx(1.5)),
    ]
    with pytest.raises(ValueError, match=r"^compile\.mode=reduce-overhead: fits several settings"):
        compare_pairs(rows, *choices, column="first_answer_s")


def test_settings_that_are_no_repeats_of_each_other_are_never_one_side():
    with pytest.raises(ValueError, match=r"^compile\.mode=default: fits several settings"):
        compare_pairs(crossing(), "compile.mode=default", "compile.mode=eager")
    halves = [replace(one, precision="32-true", step_time_ms_p50=9.0) for one in crossing()]
    found = compare_pairs([*crossing(), *halves], "amp.precision=bf16-mixed", "amp.precision=32-true")
    assert len(found) == 3 * len(OPS)
    assert {pair.conditions.get("compile.dynamic") for pair in found} == {None, "false", "true"}


def test_a_choice_takes_a_number_however_it_is_typed():
    rows = [replace(row, overrides=["optimizer.lr=1e-1", "model.num_ops=1"]) for row in crossing()]
    choices = "optimizer.lr=0.10 compile.mode=default compile.dynamic=true", "optimizer.lr=0.1 compile.mode=eager"
    (pair,) = compare_pairs(rows, *choices)
    assert pair.choice_rows[0].compile_dynamic


def test_lists_of_parts_are_chosen_as_reports_write_them():
    whole = [{"match": "features"}, {"match": "features.1", "mode": "eager"}]
    rows = [
        replace(ops_row(1, time_ms, n, compile_mode="default"), compile_scope="parts", compile_parts=parts)
        for time_ms, parts in ((2.0, [{"match": "features.0"}, {"match": "features.2"}]), (3.0, whole))
        for n in range(2)
    ]
    choices = "compile.parts=features.0+features.2", "compile.parts=features+features.1/eager"
    (pair,) = compare_pairs(rows, *choices)
    assert pair.ratio.value == pytest.approx(1.5)


def test_rows_of_two_schema_versions_are_no_pair():
    choices = "compile.mode=default compile.dynamic=false", "compile.mode=eager"
    old = [replace(row, schema_version=2, step_time_ms_p50=3 * row.step_time_ms_p50) for row in crossing()]
    pairs = compare_pairs([*old, *crossing()], *choices)
    assert [pair.conditions["schema_version"] for pair in pairs] == ["2"] * len(OPS) + ["3"] * len(OPS)
    ratios = [pair.ratio.value for pair in compare_pairs(crossing(), *choices)]
    assert [pair.ratio.value for pair in pairs] == pytest.approx(ratios * 2)
    old_eager = [row for row in old if row.compile_mode == "eager"]
    new_compiled = [row for row in crossing() if row.compile_mode != "eager"]
    assert compare_pairs([*old_eager, *new_compiled], *choices) == []


def test_the_only_pair_of_several_works_says_which_it_is():
    rows = [one for one in crossing() if one.compile_mode == "eager" or "=30" in one.overrides[0]]
    (pair,) = compare_pairs(rows, "compile.mode=default compile.dynamic=true", "compile.mode=eager")
    assert pair.conditions == {"model.num_ops": "30"}
