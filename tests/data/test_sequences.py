"""Sequences: how the texts of a row are joined and cut."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainkit.data.sequences import cut_lengths, join_texts


@pytest.mark.parametrize(
    ("lengths", "seq_len", "kept"),
    [
        ((3,), 4, (3,)),
        ((9,), 4, (3,)),
        ((9, 2), 8, (4, 2)),
        ((2, 9), 8, (2, 4)),
        ((9, 9), 9, (3, 4)),
        ((0, 9), 4, (0, 2)),
    ],
)
def test_of_two_texts_the_longer_is_cut_first(lengths, seq_len, kept):
    parts = [np.arange(100 * n, 100 * n + length, dtype=np.uint32) for n, length in enumerate(lengths)]
    pieces = [np.array([1])] + [piece for part, num in zip(parts, kept, strict=True) for piece in (part[:num] + 3, [2])]
    assert join_texts(parts, seq_len).tolist() == np.concatenate(pieces[:-1]).tolist()


@given(lengths=st.lists(st.integers(0, 40), min_size=1, max_size=4), room=st.integers(0, 60))
def test_texts_are_cut_as_little_as_needed_and_none_below_an_uncut_one(lengths, room):
    cut = cut_lengths(lengths, room)
    assert sum(cut) == min(sum(lengths), room)
    shortest_cut = min((after for before, after in zip(lengths, cut, strict=True) if after < before), default=None)
    for before, after in zip(lengths, cut, strict=True):
        assert 0 <= after <= before
        if shortest_cut is not None:
            assert after <= shortest_cut + 1
