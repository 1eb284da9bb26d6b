"""The search for the largest batch that fits, for `data.batch_size=auto`."""

from collections.abc import Mapping

MOST_DOUBLINGS = 8
CLOSE_SIZES = 1.25  # the smallest batch that does not fit, over the largest that does


def next_batch_size(first: int, fits: Mapping[int, bool]) -> int | None:
    """The batch size to try next, None if the largest that fits is known well enough.

    `first` is the size that the race begins with, `fits` has the sizes that were tried. Sizes are doubled until one
    does not fit, or halved until one does, and then halved in between.
    """
    sizes = {first: True} | dict(fits)
    largest = max([size for size, does_fit in sizes.items() if does_fit], default=0)
    too_large = [size for size, does_fit in sizes.items() if not does_fit]
    if not too_large:
        doubled = 2 * largest
        return doubled if doubled <= first * 2**MOST_DOUBLINGS else None
    smallest = min(too_large)
    if largest == 0:
        return smallest // 2 or None
    if smallest <= CLOSE_SIZES * largest:
        return None
    middle = (largest + smallest) // 2
    if middle > 16:
        middle -= middle % 8
    return middle if largest < middle < smallest else None
