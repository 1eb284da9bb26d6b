"""Remedies for skipped CUDA graphs, from torch's reason for the skip."""

from trainkit.diagnosis.remedies.matching import Clue, Remedy, choose_remedy

QUOTE = "Found from"  # here torch begins to quote the user's code
CPU = r"\bcpu device|CUDA graphs need a CUDA device"
SEVERAL_DEVICES = "multiple devices"
MUTATION = "mutat"
DYNAMIC_SHAPES = "symbolic|dynamic shape"
CPP_WRAPPER = "cpp.?wrapper"

SKIP_REMEDIES = (
    Remedy(
        cause="tensor on the CPU",
        why="A CUDA graph holds the work of one CUDA device only.",
        fix="Create tensors on the network's device (torch.arange(n, device=x.device)), register constants as buffers, "
        "and keep .cpu() out of forward. Without a GPU, use compile.mode=default.",
        clues=(Clue(CPU, unless=SEVERAL_DEVICES),),
    ),
    Remedy(
        cause="several devices",
        why="A CUDA graph holds the work of one device.",
        fix="Keep the compiled region on one device. Use one rank for each device.",
        clues=(Clue(SEVERAL_DEVICES),),
    ),
    Remedy(
        cause="input that is written to",
        why="A CUDA graph is replayed on copies of its inputs, so a write would only reach the copy.",
        fix="For a tensor from outside, write x = x + 1 and not x += 1, or call x = x.clone() first. For state of the "
        "module, use a buffer.",
        clues=(Clue(MUTATION, unless=f"{CPU}|{SEVERAL_DEVICES}"),),
    ),
    Remedy(
        cause="dynamic shapes",
        why="A CUDA graph holds for one shape.",
        fix="Set compile.dynamic=false and pad to few sizes. Or use mode default.",
        clues=(Clue(DYNAMIC_SHAPES, unless=f"{CPU}|{SEVERAL_DEVICES}|{MUTATION}"),),
    ),
    Remedy(
        cause="operation that no CUDA graph holds",
        why="The operation waits for the device, or the size of its result depends on values.",
        fix="Take it out of the compiled region. Or use a mask and keep the size (torch.where).",
        clues=(Clue("incompatible op|unsafe|custom op|control flow"),),
    ),
    Remedy(
        cause="inputs that lie elsewhere each time",
        why="The graph was recorded again for each new address, until torch stopped recording.",
        fix="Pass parameters and buffers of the module. Copy inputs into one tensor that keeps its address.",
        clues=(Clue("re-?recording limit"),),
    ),
    Remedy(
        cause="backward that is still to come",
        why="The backward of the previous step still needs its outputs.",
        fix="Call torch.compiler.cudagraph_mark_step_begin() before each step. Clone outputs that you keep longer.",
        clues=(Clue("pending"),),
    ),
    Remedy(
        cause="C++ wrapper",
        why="Inductor's cpp_wrapper records no CUDA graphs.",
        fix="Leave torch._inductor.config.cpp_wrapper false.",
        clues=(Clue(CPP_WRAPPER),),
    ),
)
UNKNOWN_SKIP = Remedy(
    cause="CUDA graphs skipped",
    why="Torch could not record this region.",
    fix="Use compile.mode=default: it loses nothing here.",
)


def remedy_for_skip(reason: str) -> Remedy:
    """The remedy for a skip, from torch's reason."""
    return choose_remedy(SKIP_REMEDIES, *skip_message(reason), UNKNOWN_SKIP)


def skip_message(reason: str) -> tuple[str, str]:
    """Torch's own words, and the user's code that it quotes after them."""
    message, _, quote = reason.partition(QUOTE)
    return message, quote
