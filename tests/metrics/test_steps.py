"""Every step is of one kind, and warm-up lasts until times settle."""

from tests.metrics.conftest import make_cost, make_step, summary_of
from trainkit.metrics import steps
from trainkit.metrics.steps import classify, num_warmup, samples_per_s, steady


def test_steps_that_compile_and_the_warm_up_after_them_are_not_steady():
    quick, compiling = make_step(1.0), make_step(900.0, compiled=True)
    epochs = [make_cost(compiling, *[quick] * 5), make_cost(quick, compiling, *[quick] * 4)]
    kinds = classify([epoch.steps for epoch in epochs])
    assert [len(steady(epoch.steps, kinds_of_epoch)) for epoch, kinds_of_epoch in zip(epochs, kinds, strict=True)] == [
        2,
        2,
    ]
    summary = summary_of(epochs)
    assert (summary["num_steps"], summary["num_steady_steps"]) == (12, 4)
    assert summary["step_time_ms_p99"] == 1.0
    assert summary["samples_per_s"] == 10_000
    assert summary["epoch_train_time_s"] is None  # both epochs hold a compile


def test_every_step_is_of_one_kind():
    slow, quick = [make_step(9.0)] * 4, [make_step(1.0)] * 10
    epoch = make_cost(make_step(900.0, compiled=True), *slow, *quick, make_step(0.5, num_batches=0))
    (kinds,) = classify([epoch.steps])
    assert kinds == ["compiling", *["warm-up"] * 4, *["steady"] * 10, "short"]
    summary = summary_of([epoch])
    counted = summary["num_compiling_steps"], summary["num_warmup_steps"], summary["num_steady_steps"]
    assert counted == (1, 4, 10)
    assert summary["step_time_ms_iqr"] == 0.0


def test_of_work_that_ran_both_ways_the_steps_of_the_last_way_are_steady():
    late = [make_step(8.0, eager=True)] * 6 + [make_step(900.0, compiled=True)] + [make_step(2.0)] * 6
    rare = [make_step(5.0, eager=True, work="rare")] * 6
    (kinds,) = classify([late + rare])
    assert kinds == [*["superseded"] * 6, "compiling", *["warm-up"] * 3, *["steady"] * 9]
    summary = summary_of([make_cost(*late, *rare)])
    assert (summary["num_superseded_steps"], summary["num_steady_steps"], summary["num_eager_steps"]) == (6, 9, 12)
    assert summary["step_time_ms"] == (13 * 2.0 + 6 * 5.0) / 19
    assert summary["steps_time_s"] == (6 * 8.0 + 900.0 + 6 * 2.0 + 6 * 5.0) / 1e3
    fell_back = [make_step(2.0)] * 6 + [make_step(900.0, compiled=True, eager=True)] + [make_step(8.0, eager=True)] * 6
    assert summary_of([make_cost(*fell_back)])["step_time_ms"] == 8.0


def test_a_shorter_last_step_of_an_accumulation_is_not_steady():
    epoch = make_cost(*[make_step(8.0, num_batches=4)] * 5, make_step(2.0, num_batches=1))
    summary = summary_of([epoch])
    assert (summary["num_steps"], summary["num_steady_steps"], summary["samples_per_s"]) == (6, 2, 5_000)


def test_samples_of_a_step_are_averaged_over_the_same_steps_as_its_time():
    batches = [make_step(8.0, num_batches=4, work="small")] * 5, [make_step(9.0, num_samples=100, num_batches=4)] * 15
    epoch = make_cost(*batches[0], *batches[1], make_step(2.0, num_batches=1, work="short"))
    summary = summary_of([epoch])
    assert summary["step_time_ms"] == (5 * 8.0 + 15 * 9.0) / 20
    assert summary["samples_per_step"] == (5 * 40 + 15 * 100) / 20
    assert summary_of([make_cost(make_step(2.0))])["samples_per_step"] is None


def test_warm_up_lasts_until_times_settle():
    settled = [10.0, 10.1, 9.9] * 20
    assert num_warmup(settled) == 3
    assert num_warmup([30.0, 25.0, 20.0, 18.0, 15.0, 14.0, 13.0, 12.0, *settled]) in range(6, 9)
    assert num_warmup([*settled[:20], 500.0, *settled]) == 3  # a hiccup later is no warm-up


def test_warm_up_is_bounded_where_times_never_settle():
    falling = [1000.0 - i for i in range(400)]
    assert num_warmup(falling) == steps.MAX_WARMUP_STEPS
    assert num_warmup(falling[:40]) == 20
    assert num_warmup(falling[:2]) == 2
    assert num_warmup([]) == 0


def test_the_speed_of_no_steps_is_unknown():
    assert samples_per_s([]) is None
