"""Which requests miss their deadline, which stage serves them, and in which order."""

from trainkit.inference.deadlines import Answer, Requests, Traffic, choose_calls, choose_stage, simulate

EXPECTED, TYPICAL = [8.0, 3.0, 2.0], [6.0, 2.5, 1.0]


def call(time_ms: float, stage: int = 0) -> Answer:
    return Answer(stage, time_ms)


def test_requests_wait_for_those_before_them():
    requests = Requests(Traffic(deadline_ms=10.0, period_ms=10.0))
    assert [requests.serve([call(ms)]).is_missed for ms in (10.0, 25.0)] == [False, True]
    assert (requests.waited_ms, requests.remaining_ms) == (15.0, -5.0)
    assert [requests.serve([call(ms)]).is_missed for ms in (4.0, 1.0, 1.0)] == [True, False, False]
    assert requests.waited_ms == 0.0  # time that was left over is no credit
    responses = simulate(Traffic(10.0, 10.0), [call(ms) for ms in (10.0, 25.0, 4.0, 1.0, 1.0)])
    assert responses == requests.responses
    assert [response.time_ms for response in responses] == [10.0, 25.0, 19.0, 10.0, 1.0]


def test_requests_may_come_more_often_than_they_are_due():
    requests = Requests(Traffic(deadline_ms=10.0, period_ms=4.0))
    assert [requests.serve([call(6.0)]).time_ms for _ in range(4)] == [6.0, 8.0, 10.0, 12.0]


def test_an_emergency_goes_before_all_that_wait():
    traffic = Traffic(deadline_ms=10.0, period_ms=4.0, emergency_frac=0.5, seed=3)
    first = Traffic(deadline_ms=10.0, period_ms=4.0, emergency_frac=0.5, emergency_first=True, seed=3)
    answers = [call(6.0)] * 40
    in_order, reordered = simulate(traffic, answers), simulate(first, answers)
    kinds = [response.is_emergency for response in in_order]
    assert 10 < sum(kinds) < 30
    assert [response.time_ms for response in in_order] == [6.0 + 2.0 * n for n in range(40)]
    slowest = max(response.time_ms for response in in_order if response.is_emergency)
    urgent = [response.time_ms for response in reordered if response.is_emergency]
    assert max(urgent) < slowest / 2
    assert min(urgent) >= 6.0  # no call is broken off, and none is shorter
    assert max(response.time_ms for response in reordered) > 10.0  # the others wait for them


def test_a_late_calls_request_gets_the_earlier_answer_at_its_deadline():
    requests = Requests(Traffic(deadline_ms=10.0, period_ms=10.0))
    in_time = requests.serve([call(1.0, stage=1), call(8.0)])
    assert (in_time.answer.stage, in_time.time_ms, in_time.in_place) == (0, 9.0, False)
    late = requests.serve([call(1.0, stage=1), call(14.0)])
    assert (late.answer.stage, late.time_ms, late.is_missed, late.in_place) == (1, 10.0, False, True)
    assert requests.waited_ms == 5.0  # the late call ran to its end
    too_late = requests.serve([call(6.0, stage=1), call(8.0)])
    assert (too_late.answer.stage, too_late.time_ms, too_late.is_missed) == (1, 11.0, True)


def test_the_most_accurate_that_fits_answers_and_else_the_one_that_typically_is_fastest():
    chosen = [choose_stage(EXPECTED, TYPICAL, left) for left in (9.0, 8.0, 7.9, 2.0, 0.5, -5.0)]
    assert chosen == [0, 0, 1, 2, 2, 2]
    assert choose_stage([8.0, 1.0, 3.0], [7.0, 1.0, 2.0], 0.0) == 1
    assert choose_stage([8.0, 9.0], [6.0, 1.0], 5.0) == 1  # one slow call of a fast stage is no backlog's reason


def test_the_fastest_stage_is_called_before_one_that_may_be_late():
    calls = [choose_calls(EXPECTED, TYPICAL, left, "fallback") for left in (10.0, 9.9, 5.0, 4.0, -1.0)]
    assert calls == [[2, 0], [2, 1], [2, 1], [2], [2]]
    assert choose_calls(EXPECTED, TYPICAL, 8.0, "wait") == [0]
