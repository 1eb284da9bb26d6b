"""Remedies for graph breaks, from torch's words and the source line.

A clue's `message` is the break's id ("GB0124", https://meta-pytorch.github.io/compile-graph-break-site), reason and
explanation, as torch 2.11 to 2.13 give them. Torch 2.11 gives no id for some.
"""

import re

from trainkit.diagnosis.remedies.matching import Clue, Evidence, Remedy, choose_remedy
from trainkit.results.facts import GraphBreak

BREAK_PAGE = "https://meta-pytorch.github.io/compile-graph-break-site/gb/{}.html"
# Torch's words.
BRANCH = "GB0170|generic_jump|[Dd]ata-dependent (branching|assertion)"
ITEM = r"GB0124|GB0109|\.item\(\)|tolist"
SCALAR = "GB0033|_local_scalar_dense"  # .item() of an operator that torch has traced
NUMPY = r"[Nn]um[Pp]y|\bndarray|`ufunc`"
RANDOM_CLASS = r"\bRandom\.|class `(System)?Random`|numpy\.random|mtrand"
OPENED = "`open`|TextIOWrapper|BufferedReader"
# Source lines.
LOOP = r"^(for|while)\b|\brange\("
PRINTED = r"^print\("
WRITTEN = r"\bsys\.(stdout|stderr)\.\w+\(|\bpprint\("
LOGGED = r"\bwarnings\.warn\(|\b(log|logger|logging)\.\w+\("
SAVED = r"\btorch\.(save|load)\("
SEEDED = r"\bmanual_seed\("
COPIED = r"\bcopy\.copy\("
TIMED = r"\btime\.(?!sleep)\w+\(|\b(datetime|date)\.(now|utcnow|today)\("
SIDE_EFFECT = f"{WRITTEN}|{LOGGED}"
NUMPY_CALL = r"\b(np|numpy)\.|\.numpy\("
# A branch on a tensor's value, as a statement or within an expression.
TESTED = r"^(if|elif|assert)\b|\bif\b.*(\.item\(|\b(float|int|bool)\()"
RANDOM_CALL = r"(?<!torch\.)\brandom\.\w+\(|\b(np|numpy)\.random\.|\bos\.urandom\(|\b(uuid|secrets)\.\w+\("
# The methods of NumPy's generators.
DRAWN = r"\.(integers|choice|shuffle|permut|rand|normal|uniform|standard|exponential|poisson|binomial|beta|gamma)\w*\("

RANDOM = Remedy(
    cause="random number of Python or NumPy",
    why="The number is drawn outside the graph, and the code after it is compiled for this number.",
    fix="Draw with torch.rand, torch.randint or torch.randperm. To act on the number, use torch.where, or index into a "
    "stacked tensor. Or draw outside forward and pass the number in as a tensor.",
    clues=(
        Clue(line=RANDOM_CALL, unless_line=PRINTED, evidence=Evidence.LINE),
        Clue(RANDOM_CLASS, unless_line=PRINTED, evidence=Evidence.VERDICT),
        Clue("of class `(Generator|RandomState)`", line=DRAWN, evidence=Evidence.MESSAGE_AND_LINE),
        # Torch does not know the type of a number that was drawn.
        Clue("python_type", line=r"^for\b.*\brange\(", evidence=Evidence.MESSAGE_AND_LINE),
    ),
)
REPEATED_RANDOM = Remedy(
    cause="random number that is drawn once",
    why="torch.compile draws it while it compiles, and every later step gets the same number. There is no break and no "
    "error, but eager computes something else (https://github.com/pytorch/pytorch/issues/145445).",
    fix=RANDOM.fix,
)
BELOW_BREAK = Remedy(
    cause="code of a library below a graph break",
    why="Python runs the line that calls it, and torch compiles the called code by itself.",
    fix="Fix the graph break in your own line first. This one then goes away, or is reported there.",
)
BREAK_REMEDIES = (
    RANDOM,
    Remedy(
        cause="tensor branch",
        why="Python needs the tensor's value to choose a side. The graph ends here, and Python waits for the value.",
        fix="Use torch.where(condition, a, b) if both sides are cheap, and torch.cond if they are not. For a check "
        "that only raises, use torch._assert_async, or check outside forward.",
        clues=(
            Clue(BRANCH),
            Clue(ITEM, line=TESTED, unless_line=LOOP, evidence=Evidence.MESSAGE_AND_LINE),
            Clue(SCALAR, line=TESTED, unless_line=f"{LOOP}|{NUMPY_CALL}", evidence=Evidence.MESSAGE_AND_LINE),
        ),
    ),
    Remedy(
        cause="data-dependent loop",
        why="The number of rounds, and of elements appended to a list, depends on a tensor's value.",
        fix="Run a fixed number of rounds. Let a mask keep or drop their results (torch.where), and write them to a "
        "tensor, not to a list. Or use torch's scan, or its while_loop, whose backward takes compile.fullgraph=true. "
        "Both start from a tensor that needs a gradient: from zeros their gradients are wrong, without an error.",
        clues=(
            Clue(BRANCH, line=r"^while\b", evidence=Evidence.MESSAGE_AND_LINE),
            Clue(f"{ITEM}|{SCALAR}", line=LOOP, evidence=Evidence.MESSAGE_AND_LINE),
        ),
    ),
    Remedy(
        cause=".item()",
        why="A tensor's value becomes a Python number. The graph ends, Python waits for the device, and the code that "
        "depends on the number is compiled for it.",
        fix="Keep it a tensor without dimensions and compute with that (with its .detach(), if later steps use it). As "
        "a size (topk, a slice), use a fixed size with a mask. As a number of rounds, use a fixed number, and a mask "
        "that keeps or drops their results. For a log, return the tensor and call .item() outside forward, seldom.",
        clues=(Clue(f"{ITEM}|{SCALAR}"),),
    ),
    Remedy(
        cause="print",
        why="Printing is a side effect, and a graph has no side effects.",
        fix="Take it out of forward, or print only if `not torch.compiler.is_compiling()`. To keep a print of tensors "
        "and constants (no .item(), no f-string), add print to torch._dynamo.config.reorderable_logging_functions.",
        clues=(
            Clue(line=PRINTED, evidence=Evidence.LINE),
            Clue("`print`"),
            Clue(line=WRITTEN, evidence=Evidence.CALL_IN_LINE),
        ),
    ),
    Remedy(
        cause="logging",
        why="A log line or a warning is a side effect, and a graph has no side effects.",
        fix="Take it out of forward, or log only if `not torch.compiler.is_compiling()`.",
        clues=(
            Clue(r"GB0291|logging\.Logger|_warnings\.warn|warnings\.py|logging/__init__"),
            Clue(line=LOGGED, unless_line=WRITTEN, evidence=Evidence.CALL_IN_LINE),
        ),
    ),
    Remedy(
        cause="NumPy",
        why="NumPy computes on the CPU and outside the graph.",
        fix="Use the torch function of the same name (torch.clamp for numpy.clip, ...), without .numpy() and "
        "from_numpy.",
        clues=(
            Clue(NUMPY, unless=r"`print`|context ?manager|contextlib", unless_line=SIDE_EFFECT),
            Clue(SCALAR, line=NUMPY_CALL, unless_line=LOOP, evidence=Evidence.MESSAGE_AND_LINE),
        ),
    ),
    Remedy(
        cause="data-dependent shape",
        why="The size of the result depends on values: nonzero, a boolean mask, unique.",
        fix="Keep the full shape and use a mask: torch.where(mask, x, 0), a sum weighted by the mask, or topk with a "
        "fixed k. Or pad to a fixed size.",
        clues=(Clue("GB0036|Dynamic shape operator|[Dd]ynamic slicing|data.dependent shape"),),
    ),
    Remedy(
        cause="part that is left out",
        why="compile.parts leaves this module out (mode: eager) of a compiled part, whose graph ends before it.",
        fix="Nothing is needed if it is to run uncompiled. Otherwise remove its entry from compile.parts.",
        clues=(Clue(r"left out by compile\.parts", evidence=Evidence.VERDICT),),
    ),
    Remedy(
        cause="function kept out of torch.compile",
        why="torch.compiler.disable or graph_break() asks for the break.",
        fix="Remove the decorator or the call. If the function cannot be traced, use torch.library.custom_op.",
        clues=(Clue(r"GB0098|GB0025|torch\.compiler\.disable|graph_break\(\)", unless=r"left out by compile\.parts"),),
    ),
    Remedy(
        cause="library call",
        why="The function is written in C or C++, or marked as not to be traced.",
        fix="Compute it once, before forward. If it works on tensors, wrap it as a torch.library.custom_op. Or compile "
        "the modules around it (compile.scope=parts).",
        clues=(Clue("GB0007|GB0008|marked as skipped", evidence=Evidence.GENERAL_MESSAGE),),
    ),
    Remedy(
        cause="Python builtin",
        why="torch.compile does not trace this function with these arguments.",
        fix="Compute it before forward, or with tensors.",
        clues=(Clue("GB0059|builtin operator", unless="marked as skipped", evidence=Evidence.GENERAL_MESSAGE),),
    ),
    Remedy(
        cause="clock",
        why="A clock is read outside the graph, and the code after it is compiled for the time it showed.",
        fix="Measure around the compiled call, or with torch.profiler.",
        clues=(
            Clue(r"`time\.(?!sleep)", unless_line=SIDE_EFFECT),
            Clue(line=TIMED, unless_line=f"{SIDE_EFFECT}|{SAVED}|{SEEDED}|{COPIED}", evidence=Evidence.CALL_IN_LINE),
        ),
    ),
    Remedy(
        cause="file",
        why="Files are read and written outside any graph.",
        fix="Open the file before forward, or after it.",
        clues=(
            Clue(OPENED, unless_line=SIDE_EFFECT),
            Clue(line=SAVED, unless_line=f"{SIDE_EFFECT}|{COPIED}", evidence=Evidence.CALL_IN_LINE),
        ),
    ),
    Remedy(
        cause="context manager",
        why="torch.compile cannot enter this context manager. After a break inside a with or try, the rest of the "
        "function runs uncompiled.",
        fix="Enter it outside forward. The ones of torch (no_grad, autocast, ...) may stay.",
        clues=(Clue("GB0142|GB0263|context ?manager|contextlib", unless=OPENED),),
    ),
    Remedy(
        cause="break that torch.compile cannot go on from",
        why="The break is inside a try, for example. This is the last line before it, and the code after it runs "
        "uncompiled.",
        fix="Take the breaking line out of the try or with. TORCH_LOGS=graph_breaks shows which line it is.",
        clues=(Clue("step_unsupported", evidence=Evidence.VERDICT),),
    ),
    Remedy(
        cause="backward inside of forward",
        why="The gradient of a graph is computed after the graph.",
        fix="Call backward outside forward, or use torch.func.grad of a function.",
        clues=(Clue(r"GB0123|Tensor\.backward\(\)"),),
    ),
    Remedy(
        cause="deepcopy",
        why="torch.compile does not trace it.",
        fix="Use tensor.clone() or tensor.detach().clone(). Copy a module in __init__.",
        clues=(
            Clue("GB4198|deepcopy"),
            Clue(line=COPIED, unless_line=SIDE_EFFECT, evidence=Evidence.CALL_IN_LINE),
        ),
    ),
    Remedy(
        cause="tensor.data",
        why="The write bypasses autograd.",
        fix="Write x = f(x), or x.copy_(...) under torch.no_grad().",
        clues=(Clue("GB0056|tensor data attribute"),),
    ),
    Remedy(
        cause="torch.Generator",
        why="A generator is a state outside the graph.",
        fix="Draw without a generator, and call torch.manual_seed outside forward. Or draw outside forward and pass "
        "the result in as a tensor.",
        clues=(
            Clue("GB7650|Generator"),
            Clue("to proxy|opaque object", line=r"\b[Gg]enerator\b", evidence=Evidence.MESSAGE_AND_LINE),
            Clue(line=SEEDED, unless_line=f"{SIDE_EFFECT}|{SAVED}|{COPIED}", evidence=Evidence.CALL_IN_LINE),
        ),
    ),
    Remedy(
        cause="Python generator",
        why="torch.compile cannot continue a generator that a graph break interrupts, or that writes to the module.",
        fix="Fix the graph break in the generator first. Or use a list, [f(x) for x in xs] instead of "
        "(f(x) for x in xs), and no yield.",
        clues=(Clue("[Gg]enerator reconstruction", evidence=Evidence.VERDICT),),
    ),
    Remedy(
        cause="sort in Python",
        why="Python compares the values outside the graph.",
        fix="Use torch.sort, torch.argsort or topk of one tensor (torch.stack of several). If the order stays the "
        "same, sort once, in __init__.",
        clues=(
            Clue(
                line=r"\bsorted\(",
                unless_line=f"{SIDE_EFFECT}|{SAVED}|{SEEDED}|{COPIED}|{TIMED}",
                evidence=Evidence.CALL_IN_LINE,
            ),
        ),
    ),
    Remedy(
        cause="layer that is made in forward",
        why="torch.compile does not make parameters within a graph. No optimizer knows them either.",
        fix="Make the layer once, in __init__; for known shapes one for each, and choose by x.shape.",
        clues=(Clue(r"GB0264|torch\.nn\.Parameter\(\). constructor", evidence=Evidence.VERDICT),),
    ),
    Remedy(
        cause="recurrent layer of torch.nn",
        why="torch.compile leaves nn.LSTM, nn.GRU and nn.RNN to eager, together with the function that calls them.",
        fix="torch._dynamo.config.allow_rnn = True takes the layer into the graph. Or compile the modules around it "
        "(compile.scope=parts), or write the steps with nn.LSTMCell or nn.GRUCell.",
        clues=(Clue("GB0014|RNN, GRU, or LSTM", evidence=Evidence.VERDICT),),
    ),
    Remedy(
        cause="packed sequence",
        why="torch.compile does not trace pack_padded_sequence and pad_packed_sequence, and the size of a packed batch "
        "depends on the lengths.",
        fix="Give the layer the padded batch, and take each sequence's last valid output: steps = lstm(padded)[0]; "
        "last = steps[torch.arange(len(steps)), lengths - 1]. It is the same, because padding comes after it. A "
        "bidirectional layer would start in the padding: run a second layer over the valid steps in reverse order "
        "(torch.gather). In means and in the loss, leave the padding out by a mask.",
        clues=(Clue("`(pack_padded|pad_packed|pack)_sequence`", evidence=Evidence.VERDICT),),
    ),
    Remedy(
        cause="one_hot without num_classes",
        why="The number of classes depends on values.",
        fix="Call torch.nn.functional.one_hot(x, num_classes=n).",
        clues=(Clue("GB0246|one_hot. with data-dependent", evidence=Evidence.VERDICT),),
    ),
    Remedy(
        cause="requires_grad that is set",
        why="The graph depends on which tensors need a gradient.",
        fix="Set it once, before the first call. Within forward use detach() or torch.no_grad().",
        clues=(Clue(r"GB0206|setattr\(\) on Tensor\.requires_grad", evidence=Evidence.VERDICT),),
    ),
    Remedy(
        cause="torch.jit.script",
        why="TorchScript runs outside Python, and torch.compile cannot follow it there.",
        fix="Call the plain module: torch.compile can take it as it is.",
        clues=(Clue(r"GB4695|torch\.jit\.script", evidence=Evidence.VERDICT),),
    ),
    Remedy(
        cause="line that the backend fails on",
        why="The captured graph is sound, but the backend cannot compile it, so the function runs uncompiled.",
        fix="Write it with other operations: x[i] = v with a tensor i becomes x.index_copy_(0, i.reshape(1), "
        "v.reshape(1)) or torch.where. A while_loop with a backward takes compile.fullgraph=true. Or leave the module "
        "out (compile.scope=parts).",
        clues=(Clue("GB0219|Backend compiler exception", evidence=Evidence.VERDICT),),
    ),
)


def remedy_for_break(graph_break: GraphBreak) -> Remedy:
    """The remedy for a graph break of a row or of compile facts; torch's own explanation for an unknown one."""
    return choose_remedy(BREAK_REMEDIES, *break_message(graph_break), _torchs_explanation(graph_break))


def break_message(graph_break: GraphBreak) -> tuple[str, str]:
    """Torch's id, reason and explanation without its examples, and the source line without its comment."""
    message = " ".join([graph_break.id or "", graph_break.reason, graph_break.explanation])
    message = re.sub(r"\(e\.g\. [^)]*\)", "", message)  # torch's examples are of other causes
    line = re.sub(r"\s#.*", "", graph_break.code)
    return message, line


def _torchs_explanation(graph_break: GraphBreak) -> Remedy:
    fix = "TORCH_LOGS=graph_breaks shows what torch knows."
    if graph_break.id is not None:
        fix = f"See {BREAK_PAGE.format(graph_break.id.lower())}"
    cause = graph_break.reason or "unknown"
    why = graph_break.explanation or "Torch gives no explanation."
    return Remedy(cause, why, fix)
