"""The state of all random number generators that a training draws from, as a checkpoint stores it."""

import random
from typing import Any

import numpy as np
import torch


def rng_state(device: torch.device) -> dict[str, Any]:
    """The state of Python's, numpy's and torch's generators, and of the GPU's, in types that `torch.load` trusts."""
    numpy_state: Any = np.random.get_state()
    name, keys, position, has_normal, normal = numpy_state
    state = {
        "python": random.getstate(),
        "numpy": (name, keys.tolist(), position, has_normal, normal),
        "torch": torch.get_rng_state(),
    }
    if device.type == "cuda":
        state["cuda"] = torch.cuda.get_rng_state(device)
    return state


def restore_rng_state(state: dict[str, Any], device: torch.device) -> None:
    """Have all generators go on from a state."""
    random.setstate(state["python"])
    np.random.set_state(state["numpy"])
    torch.set_rng_state(state["torch"])
    if device.type == "cuda" and "cuda" in state:
        torch.cuda.set_rng_state(state["cuda"], device)
