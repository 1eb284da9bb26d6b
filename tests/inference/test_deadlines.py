"""Which requests miss their deadline, and which stage serves them."""

from trainkit.inference.deadlines import Requests, choose_stage, miss_frac


def test_requests_wait_for_those_before_them():
    requests = Requests(deadline_ms=10.0)
    assert [requests.serve(ms) for ms in (10.0, 25.0)] == [False, True]
    assert (requests.late_ms, requests.remaining_ms) == (15.0, -5.0)
    assert [requests.serve(ms) for ms in (4.0, 1.0, 1.0)] == [True, False, False]
    assert requests.late_ms == 0.0  # time that was left over is no credit
    assert miss_frac([10.0, 25.0, 4.0, 1.0, 1.0], 10.0) == 2 / 5
    assert miss_frac([], 10.0) is None


def test_the_most_accurate_that_fits_answers_and_else_the_one_that_typically_is_fastest():
    expected, typical = [8.0, 3.0, 2.0], [6.0, 2.5, 1.0]
    assert [choose_stage(expected, typical, left) for left in (9.0, 8.0, 7.9, 2.0, 0.5, -5.0)] == [0, 0, 1, 2, 2, 2]
    assert choose_stage([8.0, 1.0, 3.0], [7.0, 1.0, 2.0], 0.0) == 1
    assert choose_stage([8.0, 9.0], [6.0, 1.0], 5.0) == 1  # one slow call of a fast stage is no backlog's reason
