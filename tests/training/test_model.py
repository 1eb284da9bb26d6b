"""The network of a run, tried before it is trained."""

import torch

from trainkit.compiler.startup import num_cores
from trainkit.training.model import share_of_cores


def test_a_rank_computes_on_its_share_of_the_cores_and_never_on_fewer_than_before():
    before = torch.get_num_threads()
    try:
        for num_threads, num_ranks, during in ((1, 1, num_cores()), (1, 1000, 1), (3, 1000, 3)):
            torch.set_num_threads(num_threads)
            with share_of_cores(num_ranks):
                assert torch.get_num_threads() == during
            assert torch.get_num_threads() == num_threads
    finally:
        torch.set_num_threads(before)
