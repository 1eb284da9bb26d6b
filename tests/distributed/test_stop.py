"""Ranks that are told to stop at different moments agree on the batch."""

import threading

from trainkit.distributed.stop import Stop


def begin(stop: Stop, batches: int) -> None:
    for _ in range(batches):
        assert stop.begin_batch()


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
    assert not fast.begin_batch()
    assert not slow.begin_batch()


def test_a_rank_that_is_held_waits_for_the_agreement():
    stop, answers = Stop(), []
    begin(stop, 3)
    assert stop.hold() == 3
    thread = threading.Thread(target=lambda: answers.append((stop.begin_batch(), stop.begin_batch())))
    thread.start()
    thread.join(0.2)
    assert answers == []
    stop.agree([3, 4])
    thread.join(30)
    assert answers == [(True, False)]
    assert stop.num_batches == 4
