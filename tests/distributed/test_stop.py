"""Ranks that are told to stop at different moments agree on the step."""

import threading

from trainkit.distributed.stop import Stop


def begin(stop: Stop, steps: int) -> None:
    for _ in range(steps):
        assert stop.begin_step()


def test_the_rank_that_has_begun_most_decides():
    fast, slow = Stop(), Stop()
    begin(fast, 7)
    begin(slow, 5)
    limits = [fast.hold(), slow.hold()]
    assert limits == [7, 5]
    for stop in (fast, slow):
        stop.agree(limits)
    assert (fast.is_due, slow.is_due) == (True, False)
    begin(slow, 2)
    assert slow.is_due
    assert not fast.begin_step()
    assert not slow.begin_step()


def test_a_rank_that_is_held_waits_for_the_agreement():
    stop, answers = Stop(), []
    begin(stop, 3)
    assert stop.hold() == 3
    thread = threading.Thread(target=lambda: answers.append((stop.begin_step(), stop.begin_step())))
    thread.start()
    thread.join(0.2)
    assert answers == []
    stop.agree([3, 4])
    thread.join(30)
    assert answers == [(True, False)]
    assert stop.num_steps == 4
