"""Remedies for recompiles, from torch's text for the guard that failed.

A clue's `message` is the guard. Its `line` is torch's comment on the guard: source line, function and hints.
"""

from trainkit.diagnosis.remedies.matching import Clue, Evidence, Remedy, choose_remedy

AFTER_BREAK_VALUE = r"___stack\d"  # a value that a graph break left on the stack
RESUMED_FUNCTION = "torch_dynamo_resume_in"  # the name of the rest of a function after a graph break
INTEGER_HINT = r"integer attributes of the nn\.Module"  # torch's hint where a module counts
ATTRIBUTE = r"\bself\b"
WEIGHTS_DIFFER = r"\b_(parameters|buffers)\[.* (size|rank|stride) mismatch"
TRAINING_MODE = r"\.training\b"
BOUNDED_SIZE = r"\d <= \S*\.size\(\)\[\d+\]|\.size\(\)\[\d+\] <= \d"
EQUAL_SIZE = r"\.size\(\)\[\d+\] == \S*\.size\(\)\[\d+\]"
ANY_SIZE = r"\.size\(\)\[|\.shape\["
ANY_STRIDE = r"\.stride\(\)|storage_offset"
DECIMAL = r"-?\d+(\.\d|e-?\d)"
GRAD_MODE = "grad_mode|GradMode|inference"

AFTER_BREAK = Remedy(
    cause="value that a graph break brought back",
    why="The break computes a value (for a tensor: its size) in Python. The value is a constant in the graph after the "
    "break, and each new value compiles that graph again.",
    fix="Fix the graph break in this line, or in the function it calls. Then this recompile goes away too.",
    clues=(
        Clue(AFTER_BREAK_VALUE, evidence=Evidence.VERDICT),
        Clue(
            " == ", line=RESUMED_FUNCTION, unless=r"type\(", unless_line=INTEGER_HINT, evidence=Evidence.GENERAL_MESSAGE
        ),
    ),
)
CHANGING_SIZE = Remedy(
    cause="shape that changes",
    why="The graph was compiled for another size.",
    fix="Set compile.dynamic=true. If the whole network is compiled, use compile.mark_dynamic for the one dimension "
    "(torch._dynamo.mark_dynamic). Padding to few sizes is better. If it is the short last batch of a training epoch, "
    "give your DataLoader drop_last=True; that of a validation is not compiled for. "
    "compile.max_recompiles limits the recompiles.",
    clues=(
        Clue("size mismatch", unless=WEIGHTS_DIFFER),
        Clue(ANY_SIZE, unless=rf"{BOUNDED_SIZE}|{EQUAL_SIZE}|size mismatch"),
    ),
)
FIXED_SIZE = Remedy(  # CHANGING_SIZE with compile.dynamic=true
    cause="size that the network fixes",
    why="Sizes are dynamic, but Python code uses this one as a number: in a range, a list, the key of a dict or a "
    "condition.",
    fix="Keep the size out of Python: use torch.arange(x.shape[0], device=x.device) and operations on whole tensors. "
    "Or pad to few sizes. compile.max_recompiles limits the recompiles.",
)
SIZE_BOUNDS = Remedy(
    cause="size out of bounds",
    why="The graph holds for sizes within bounds. The bounds come from compile.mark_dynamic or from a comparison in "
    "the network. A size of 1 always has its own graph.",
    fix="Raise max (or lower min) in compile.mark_dynamic, or remove them. Otherwise nothing is needed: there is one "
    "graph on each side of the bound.",
    clues=(Clue(BOUNDED_SIZE),),
)
EQUAL_SIZES = Remedy(
    cause="sizes that were equal",
    why="Two sizes were equal at the first call, and torch took them for the same size (duck sizing).",
    fix="Nothing is needed: it compiles once more. To avoid that, choose a batch size that equals no other size of the "
    "network.",
    clues=(Clue(EQUAL_SIZE, unless=BOUNDED_SIZE),),
)
RANK = Remedy(
    cause="number of dimensions that changes",
    why="A graph holds for one number of dimensions.",
    fix="Pass tensors with the same number of dimensions: call unsqueeze or flatten first.",
    clues=(Clue("rank mismatch", unless=WEIGHTS_DIFFER),),
)
LAYOUT = Remedy(
    cause="strides that change",
    why="The graph was compiled for another memory layout.",
    fix="Call x.contiguous() before the call.",
    clues=(Clue(f"stride mismatch|{ANY_STRIDE}", unless=WEIGHTS_DIFFER),),
)
BY_BATCH_SHAPE = (CHANGING_SIZE, FIXED_SIZE, SIZE_BOUNDS, EQUAL_SIZES, RANK, LAYOUT)  # the batch's shapes cause these
RECOMPILE_REMEDIES = (
    AFTER_BREAK,
    CHANGING_SIZE,
    SIZE_BOUNDS,
    EQUAL_SIZES,
    RANK,
    LAYOUT,
    Remedy(
        cause="module of another size",
        why="Modules of one class share their code. A graph that was compiled for the parameters of one module does "
        "not hold for modules of other sizes.",
        fix="Nothing is needed for a few sizes: each compiles once. For many sizes, remove the graph break before this "
        "line, so that all modules are in one graph. compile.max_recompiles=20 raises torch's limit of 8.",
        clues=(Clue(WEIGHTS_DIFFER),),
    ),
    Remedy(
        cause="number in an attribute that changes",
        why="A number in an attribute of the module is a constant in the graph. Another value needs another graph.",
        fix='Use a tensor: self.register_buffer("t", torch.ones(())) and self.t = self.t * 0.99. Take the .detach() of '
        "a value that the network computes. Or pass it in as a tensor. If a layer needs a number (the p of a dropout), "
        "apply it yourself as a tensor, or change it once an epoch.",
        clues=(
            Clue(rf"{ATTRIBUTE}\S*\]\)? == -?\d", unless=rf"\blen\(|{ANY_SIZE}|{ANY_STRIDE}"),
            Clue(rf"{ATTRIBUTE}\S*\.\w+\)? == {DECIMAL}"),
        ),
    ),
    Remedy(
        cause="attribute counter",
        why="A number in an attribute of the module is a constant in the graph. Each new value needs another graph.",
        fix='Use self.register_buffer("n", torch.zeros((), dtype=torch.int64)) and self.n = self.n + 1. With +=, '
        "gradients may be wrong if forward uses n (https://github.com/pytorch/pytorch/pull/197039). Use torch.where "
        "for decisions that depend on n. Or count outside forward.",
        clues=(
            Clue(rf"{ATTRIBUTE}\S*\.\w+ == -?\d", unless=f"== {DECIMAL}"),
            Clue(line=INTEGER_HINT, evidence=Evidence.GENERAL_MESSAGE),
        ),
    ),
    Remedy(
        cause="attribute that changes",
        why="A boolean, a string or None in an attribute of the module is a constant in the graph. Each new value "
        "needs another graph.",
        fix="Nothing is needed for two values: each compiles once. Create in __init__ the attributes that the first "
        "call creates. For many values use a tensor, or set the attribute outside forward.",
        clues=(
            Clue(
                rf"hasattr|{ATTRIBUTE}\S*\.\w+ == (True|False|['\"])|{ATTRIBUTE}\S*\.\w+ is (not )?None",
                unless=TRAINING_MODE,
            ),
        ),
    ),
    Remedy(
        cause="dict that grows",
        why="The graph depends on the keys of a dict in an attribute. Each new key needs another graph.",
        fix="Compute the value again: this is cheap within a graph. Or fill the dict in __init__.",
        clues=(Clue("___dict_contains"),),
    ),
    Remedy(
        cause="list, tuple, dict or set that changes",
        why="The length of the container is a constant in the graph, and so are the numbers and strings in it. Each "
        "new content needs another graph.",
        fix="Use a buffer of fixed size and write to it with index_copy_. Or return the value and collect it outside "
        "forward. Or fill the container once, in __init__.",
        clues=(Clue(rf"\blen\(|^\d+/\d+: not self\b|{ATTRIBUTE}\S* == ([(\[{{]|set\()", unless=TRAINING_MODE),),
    ),
    Remedy(
        cause="dtype or device that changes",
        why="A graph holds for one dtype and one device.",
        fix="Cast before the call, always to the same dtype and device.",
        clues=(Clue("dtype mismatch|device mismatch|dispatch key set mismatch"),),
    ),
    Remedy(
        cause="requires_grad or grad mode that changes",
        why="Training and evaluation have their own graphs, and so do inputs with and without gradient.",
        fix="Nothing is needed for one graph each for training and validation. In a loop, always use the same "
        "torch.no_grad().",
        clues=(Clue("requires_grad mismatch"), Clue(GRAD_MODE, unless=ATTRIBUTE)),
    ),
    Remedy(
        cause="train() and eval()",
        why="Training mode and evaluation mode have their own graphs.",
        fix="Nothing is needed: there is one graph for each. Do not switch within a step.",
        clues=(Clue(TRAINING_MODE),),
    ),
    Remedy(
        cause="argument or global number that changes",
        why="A Python number is a constant in the graph. Each new value needs another graph.",
        fix="Pass it as a tensor, torch.tensor(k). For an int argument, set compile.dynamic=true. For a number of a "
        "module or a class, use a buffer of the network, or count outside forward.",
        clues=(
            Clue(
                r"[\w\]] == (-?[\d.]|['\"])",
                unless_line=rf"{RESUMED_FUNCTION}|{INTEGER_HINT}",
                evidence=Evidence.GENERAL_MESSAGE,
            ),
            Clue(r"[\w\]] != (-?[\d.]|['\"])", unless_line=INTEGER_HINT, evidence=Evidence.GENERAL_MESSAGE),
        ),
    ),
    Remedy(
        cause="another object than before",
        why="The graph was compiled for another module, function or object.",
        fix="Call the same object each time. Create functions and lambdas once, in __init__.",
        clues=(
            Clue(
                r"___check_obj_id|___check_type_id|is not |type\(",
                unless=r"[\w\]] [!=]= (-?[\d.]|['\"])",
                unless_line=INTEGER_HINT,
                evidence=Evidence.GENERAL_MESSAGE,
            ),
        ),
    ),
    Remedy(
        cause="global state of torch that changes",
        why="Autocast, deterministic mode, the number of threads and the default dtype belong to the graph.",
        fix="Set it once, before the first call.",
        clues=(
            Clue(
                "GLOBAL_STATE|autocast|deterministic|torch_function|default_dtype|num_threads",
                unless=rf"{GRAD_MODE}|{ATTRIBUTE}",
            ),
        ),
    ),
)
UNKNOWN_GUARD = Remedy(
    cause="guard that failed",
    why="The graph was compiled under another condition.",
    fix="Keep the value that the guard names the same.",
)


def remedy_for_recompile(reason: str, dynamic: bool | None = None) -> Remedy:
    """The remedy for a recompile, from torch's reason; `dynamic` is compile.dynamic of the run."""
    remedy = choose_remedy(RECOMPILE_REMEDIES, *guard_message(reason), UNKNOWN_GUARD)
    return FIXED_SIZE if remedy is CHANGING_SIZE and dynamic else remedy


def guard_message(reason: str) -> tuple[str, str]:
    """The guard that failed, and torch's comment on it."""
    failed = guard(reason)
    return failed, reason.removeprefix(failed)


def guard(reason: str) -> str:
    """The guard that failed, without torch's comment, which quotes the user's source line."""
    first = reason.partition("\n")[0]
    return first.partition(" # ")[0].strip() or reason
