"""The verdict on a setting, and the setting that is recommended."""

import re
from collections.abc import Sequence
from dataclasses import replace

import pytest

from tests.report.conftest import line_of, shown
from tests.sweeps import EAGER, gpu_sweep, make_row, repeats, small_row
from trainkit.analysis.candidates import BreakEven, Candidate, MetricSpread, Spread
from trainkit.analysis.comparison import Comparison, Group, compare
from trainkit.report.markdown import markdown_comparison
from trainkit.report.recommendations import recommendation
from trainkit.report.terminal import print_comparison
from trainkit.report.verdicts import verdict
from trainkit.results.row import Row
from trainkit.stats import Ratio

ROUNDED = BreakEven(num_steps=4387, num_epochs=7.02, minutes=2.95)


def metric(value: float, name: str = "accuracy", higher_is_better: bool = True) -> MetricSpread:
    return MetricSpread(name, higher_is_better, name == "accuracy", Spread(value, value, value), frozenset({0, 1, 2}))


def judged(num_planned_steps: int | None = None, **fields) -> tuple[Candidate, Group]:
    """A compiled setting of a group of three repeats each, with other figures, and its group."""
    (group,) = compare(gpu_sweep(), num_planned_steps).groups
    setting = replace(group.candidates[1], **{"speedup": Ratio(1.449, 1.431, 1.467, 0.012, True), **fields})
    return setting, replace(group, candidates=(group.candidates[0], setting, *group.candidates[2:]))


def test_a_verdict_says_gain_cost_and_when_it_pays():
    setting, group = judged(setup_time_s=Spread(46.2, 46.0, 47.0), break_even=ROUNDED)
    gain = "reduce-overhead: 1.45x [1.43, 1.47] over eager"
    words = f"{gain}, +46 s compile, pays off after 4,400 steps (7 epochs, 3.0 min)"
    assert verdict(setting, group) == words
    assert verdict(setting, replace(group, num_planned_steps=10_000)) == words
    short_run = replace(group, num_planned_steps=2_000)
    assert verdict(setting, short_run) == f"{words}; for a run of 2,000 steps stay with eager"


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        (
            {"speedup": Ratio(1.008, 0.99, 1.02, 0.012, False)},
            "no measurable difference from eager (1.01x [0.99, 1.02], ",
        ),
        ({"speedup": Ratio(1.008, 0.99, 1.02, 0.012, False)}, "noise floor 1.2 %)"),
        ({"speedup": Ratio(0.74, 0.72, 0.76, 0.012, True)}, "reduce-overhead: 0.74x [0.72, 0.76]: slower than eager"),
        ({"speedup": Ratio(1.3)}, "reduce-overhead: unknown: 1 run of eager (1.30x over eager)"),
        ({"speedup": None}, "reduce-overhead: no eager row to compare with"),
        ({"setup_time_s": None}, "1.45x [1.43, 1.47] over eager, compile time unknown"),
        ({"eager_metric": metric(0.95)}, "; accuracy 0.910 is worse than eager's 0.950 by more than chance"),
        ({"eager_metric": metric(0.81)}, "; accuracy 0.910 is better than eager's 0.810 by more than chance"),
        (
            {"metric": metric(0.3, "Error", False), "eager_metric": metric(0.2, "Error", False)},
            "; Error 0.300 is worse than eager's 0.200 by more than chance",
        ),
        (
            {"metric": metric(2e-4, "Error", False), "eager_metric": metric(1e-4, "Error", False)},
            "; Error 0.0002 is worse than eager's 0.0001 by more than chance",
        ),
    ],
)
def test_a_verdict_says_what_is_unknown_and_what_speaks_against_a_setting(fields, words):
    assert words in verdict(*judged(break_even=None, **fields))


def test_a_verdict_of_one_repeat_is_unknown():
    (group,) = compare(gpu_sweep(1)).groups
    assert verdict(group.candidates[0], group) == "max-autotune: unknown: 1 run (1.52x over eager)"
    assert recommendation(group) == "No advice: too few runs."


def test_the_advice_without_planned_steps_names_what_pays_in_the_end_and_what_pays_first():
    (group,) = compare(gpu_sweep()).groups
    assert recommendation(group) == (
        "Train with max-autotune: 1.50x [1.48, 1.52] over eager; it pays off after 9,500 steps (15 epochs, 5.4 min). "
        "For shorter runs: reduce-overhead pays off first, after 2,600 steps (4 epochs, 88 s)."
    )


@pytest.mark.parametrize(
    ("num_steps", "words"),
    [
        (2_000, "Stay with eager for a run of 2,000 steps: max-autotune has faster steps, but compiling does not"),
        (
            20_000,
            "Train with reduce-overhead for a run of 20,000 steps: 1.45x [1.43, 1.46] over eager, 8.3 min in all; ",
        ),
        (10**6, "Train with max-autotune for a run of 1,000,000 steps: 1.50x [1.48, 1.52] over eager, 6.3 h in all; "),
    ],
)
def test_the_advice_for_planned_steps_is_what_needs_the_least_time(num_steps, words):
    (group,) = compare(gpu_sweep(), num_steps).groups
    assert recommendation(group).startswith(words)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"compile_time_s": None}, "its compile time is unknown"),
        ({"compile_time_s": 1.0, "cache_found": "warm"}, "how long it compiles with a cold cache is unknown"),
        ({"compile_time_s": 1e6, "cache_found": "cold"}, "compiling does not pay off by then"),
    ],
)
def test_why_eager_is_best_for_the_planned_steps(fields, reason):
    """default takes 5 ms a step in place of 10; max-autotune compiles longer than all steps take."""
    rows = [*EAGER, *repeats("default", 5.0, 5.01, 5.02, **fields)]
    rows += repeats("max-autotune", 9.0, 9.01, 9.02, compile_time_s=1e6, cache_found="cold")
    (group,) = compare(rows, 10_000).groups
    assert recommendation(group).endswith(f": default has faster steps, but {reason}.")


def test_the_advice_where_nothing_is_better_or_nothing_can_be_said():
    (group,) = compare(alike((2.0, 2.01, 2.02))).groups
    assert recommendation(group) == "Stay with eager: no setting is measurably faster."
    (eager,) = compare(slow_rows()).groups
    assert recommendation(eager) == "No advice: there is nothing to compare eager with."
    (compiled,) = compare(alike((2.0, 2.1, 2.2))[3:]).groups
    assert recommendation(compiled) == "No advice: eager was not measured; run compile.mode=eager too."


def test_seeds_of_one_side_alone_prove_no_difference_of_the_metric():
    def rows(*eager_seeds: int) -> list[Row]:
        accuracies = (0.95, 0.951, 0.952)
        eager = [small_row(val_accuracy=accuracies[seed], seed=seed) for seed in eager_seeds]
        compiled = [small_row("default", 5.0, val_accuracy=a - 0.1, seed=n) for n, a in enumerate(accuracies)]
        return eager + compiled

    (group,) = compare(rows(0, 1, 2)).groups
    assert "eager's 0.951 by more than chance" in verdict(group.candidates[0], group)
    (group,) = compare(rows(0, 0, 0)).groups
    words = "; accuracy 0.851 is worse than eager's 0.950 with these seeds; others may differ"
    assert verdict(group.candidates[0], group).endswith(words)


def test_one_seed_proves_no_difference_of_the_metric():
    (group,) = compare(gpu_sweep()).groups
    one_seed = {"metric": metric(0.91), "eager_metric": metric(0.95)}
    for name, value in one_seed.items():
        one_seed[name] = replace(value, seeds=frozenset({0}))
    candidate = replace(group.candidates[0], **one_seed)
    words = "; accuracy 0.910 is worse than eager's 0.950 with this seed; others may differ"
    assert verdict(candidate, group).endswith(words)


def test_a_faster_setting_with_a_worse_metric_is_not_advised_and_why_is_said():
    def rows(worse: str | None) -> list[Row]:
        found = []
        for row in gpu_sweep():
            value = 0.5 if row.compile_mode == worse else 0.9
            metric = {"metric_name": "R2Score", "metric_higher_is_better": True}
            found.append(replace(row, val_accuracy=None, val_metric=value + 0.01 * row.repeat, **metric))
        return found

    (group,) = compare(rows("max-autotune")).groups
    words = recommendation(group)
    assert words.startswith("Train with reduce-overhead: 1.45x")
    assert words.endswith(
        " max-autotune is 3.8 % faster, but its R2Score 0.510 is worse than eager's 0.910 by more than chance."
    )
    (group,) = compare(rows("max-autotune"), 10**6).groups
    assert recommendation(group).startswith("Train with reduce-overhead for a run of 1,000,000 steps: ")
    fast_only = [row for row in rows("max-autotune") if row.compile_mode in ("eager", "max-autotune")]
    (group,) = compare(fast_only).groups
    assert recommendation(group) == (
        "Stay with eager: no setting that predicts as well is measurably faster. max-autotune is 50.3 % faster, but "
        "its R2Score 0.510 is worse than eager's 0.910 by more than chance."
    )
    (group,) = compare(rows("eager")).groups
    assert recommendation(group).startswith("Train with max-autotune: ")


def test_where_noise_may_hide_a_gain_nothing_is_advised_and_the_repeats_that_would_tell_are_said():
    (group,) = compare(alike((1.0, 5.0, 1.1))).groups
    assert recommendation(group) == (
        "Cannot tell: step times vary 5.00x between runs of one setting (a busy machine?); over 997 more repeats like "
        "these would show a difference of 5 %, fewer on an idle machine."
    )
    compiled = next(candidate for candidate in group.candidates if not candidate.is_eager)
    words = "default: cannot tell whether it is faster than eager (1.00x ["
    assert verdict(compiled, group).startswith(words)
    assert verdict(compiled, group).endswith("; 5 % would take 1,000 or more repeats)")
    (group,) = compare(alike((2.0, 2.05, 2.1))).groups
    assert recommendation(group).startswith("Cannot tell: step times vary 1.05x ")
    assert "; 1 more repeat like these would show a difference of 5 %" in recommendation(group)
    assert "; 5 % would take 4 repeats)" in verdict(group.candidates[1], group)
    (group,) = compare(alike((2.0, 2.02, 2.04))).groups
    assert verdict(group.candidates[1], group).startswith("default: no measurable difference from eager (1.00x [")
    assert verdict(group.candidates[1], group).endswith("; 2 % would take 4 repeats)")


def alike(times_ms: Sequence[float]) -> list[Row]:
    """Runs of eager and of a compiled setting, with the same step times."""
    rows = []
    for mode in ("eager", "default"):
        for row in slow_rows(times_ms):
            rows.append(replace(row, compile_mode=mode, effective_mode=mode))
    return rows


def slow_rows(times_ms: Sequence[float] = (2.0, 2.1, 2.2)) -> list[Row]:
    return [make_row("eager", ms, repeat=n) for n, ms in enumerate(times_ms)]


def shared_cache(mode: str, cold_s: float, warm_s: float) -> list[Row]:
    """Three runs of a mode as a sweep leaves them: the first finds nothing in the compile cache, the others all."""
    cache = [(cold_s, "cold"), (warm_s, "warm"), (warm_s, "warm")]
    return [
        make_row(mode, 17.0 + 0.01 * n, repeat=n, compile_time_s=cost, cache_found=found, compile_cache="warm")
        for n, (cost, found) in enumerate(cache)
    ]


def test_a_cold_compile_and_a_warm_one_are_two_costs():
    eager = [make_row("eager", 34.0 + 0.01 * n, repeat=n) for n in range(3)]
    (group,) = compare([*eager, *shared_cache("default", 17.0, 1.7)]).groups
    text = shown(print_comparison, Comparison((group,), ()))
    assert line_of(text, "default").split()[2] == "17.0"
    assert "warm 1.7" in text
    assert "+17 s compile (1.7 s warm), pays off after 1,100 steps" in " ".join(text.split())
    assert "110 steps with a warm cache" in " ".join(text.split())
    assert "cache was shared" not in text  # by one compiled setting only
    autotuned = shared_cache("max-autotune", 30.0, 2.0)
    assert "cache was shared" in shown(print_comparison, compare([*eager, *autotuned, *shared_cache("default", 17, 1)]))
    warm = [replace(r, cache_found="warm") for r in shared_cache("default", 1.7, 1.7)]
    assert "| 1.7 (warm) |" in markdown_comparison(compare([*eager, *warm]))
    assert "+1.7 s compile with a warm cache, pays" in markdown_comparison(compare([*eager, *warm]))
    mixed = [replace(warm[0], cache_found="mixed", compile_time_s=9.0), *warm[1:]]
    text = markdown_comparison(compare([*eager, *mixed]))
    assert "| 9.0 (partly warm; warm 1.7) |" in text
    assert "+9.0 s compile with a partly warm cache (1.7 s warm), pays" in text
    assert re.search(r"it pays off after [\d,]+ steps \([^)]*\) with a partly warm cache\.\*\*", text)


def advised(*rows: Row, planned: int | None = None) -> tuple[str | None, str]:
    (group,) = compare(rows, planned).groups
    return group.recommended and group.recommended.label, recommendation(group)


def test_a_gain_of_less_than_2_percent_is_worth_no_compile_until_the_planned_steps_say_so():
    rows = [*EAGER, *repeats("default", 9.9, 9.905, 9.895, compile_time_s=20.0)]
    assert advised(*rows) == (
        "eager",
        "Stay with eager: the fastest, default, is 1.0 % faster, of which 0.5 % is sure.",
    )
    label, words = advised(*rows, planned=10_000_000)
    assert label == "default"
    assert words.startswith("Train with default for a run of 10,000,000 steps")


def test_one_lucky_repeat_makes_no_setting_the_best():
    default = repeats("default", 8.0, 8.01, 7.99, compile_time_s=20.0)
    lucky = repeats("max-autotune", 7.5, 7.995, 8.4, compile_time_s=300.0)
    assert advised(*EAGER, *default, *lucky)[0] == "default"
    once = small_row("reduce-overhead", 5.0, compile_time_s=5.0)
    assert "reduce-overhead" not in advised(*EAGER, *default, once)[1]  # one run: nothing is known of it


def test_what_only_a_warm_cache_was_seen_of_wins_against_no_cold_compile():
    default = repeats("default", 8.0, 8.01, 7.99, compile_time_s=60.0, cache_found="cold")
    warmed = repeats("max-autotune", 8.0, 8.01, 7.99, compile_time_s=10.0, cache_found="warm")
    assert advised(*EAGER, *default, *warmed)[0] == "default"
    assert advised(*EAGER, *default, *warmed, planned=6_000)[0] == "eager"
    label, words = advised(*EAGER, *warmed, planned=6_000)
    assert (label, "in all with a warm cache" in words) == ("max-autotune", True)
    unknown = repeats("reduce-overhead", 8.0, 8.01, 7.99)
    assert advised(*EAGER, *default, *unknown)[0] == "default"


def test_with_several_baselines_the_words_name_the_one_and_only_what_beats_all_pays_first():
    bf16 = {"precision": "bf16-mixed", "overrides": ["amp=bf16"]}
    eager = repeats("eager", 5.0, 5.01, 4.99, **bf16)
    default = repeats("default", 8.0, 8.01, 7.99, compile_time_s=2.0)
    faster = repeats("default", 4.0, 4.01, 3.99, compile_time_s=20.0, **bf16)
    label, words = advised(*EAGER, *eager, *default, *faster)
    assert label == "default, bf16-mixed"
    assert "over eager, bf16-mixed" in words
    assert "pays off first" not in words


def test_what_pays_first_is_counted_over_the_eager_setting_that_a_short_run_does_best_with():
    bf16 = {"precision": "bf16-mixed", "overrides": ["amp=bf16"]}
    eager = repeats("eager", 5.0, 5.01, 4.99, **bf16)
    faster = repeats("default", 4.0, 4.01, 3.99, compile_time_s=20.0, **bf16)
    default = repeats("default", 4.5, 4.51, 4.49, compile_time_s=2.0)
    label, words = advised(*EAGER, *eager, *default, *faster)
    assert label == "default, bf16-mixed"
    assert "; it pays off after 20,000 steps " in words
    assert "For shorter runs: default, 32-true pays off first over eager, bf16-mixed, after 4,000 steps " in words
    late = repeats("default", 4.9, 4.91, 4.89, compile_time_s=2.1)  # over its own eager it would pay the soonest
    assert "pays off first" not in advised(*EAGER, *eager, *late, *faster)[1]


def test_without_an_eager_run_of_the_same_settings_more_repeats_are_not_asked_for():
    other = repeats("default", 8.0, 8.01, 7.99, overrides=["trainer.max_epochs=3"])
    assert advised(*EAGER, *other) == (None, "No advice: no eager run has the settings of the others.")
    same = repeats("default", 8.0, 8.01, 7.99, overrides=["logger.wandb.project=mine"], compile_time_s=1.0)
    assert advised(*EAGER, *same)[0] == "default"
