"""What to do about a graph break, a recompile, a CUDA graph that was not recorded: torch's words in, a remedy out.

Pure: it knows what torch 2.11 to 2.13 say, and nothing else of torch. The first rule that fits is taken, the special
ones stand first; what no rule knows gets torch's own explanation.
"""

import re
from dataclasses import dataclass

from trainkit.results.facts import GraphBreak


@dataclass(frozen=True)
class Advice:
    """A cause by its short name, why torch.compile stumbles over it, and what to write instead."""

    cause: str
    why: str
    remedy: str


TENSOR_BRANCH = Advice(
    "tensor branch",
    "Python has to know the tensor's value to take a side, so the graph ends here and the value is waited for",
    "torch.where(condition, a, b) where both sides are cheap, torch.cond where they are not; a check that only raises: "
    "torch._assert_async, or check outside of forward",
)
DATA_LOOP = Advice(
    "data-dependent loop",
    "how often the loop runs, and what it appends to a list, depends on a tensor's value",
    "a fixed number of rounds whose results a mask keeps or drops (torch.where), written into a tensor and not a list; "
    "or scan; forward only: torch.while_loop",
)
ITEM = Advice(
    ".item()",
    "a tensor's value becomes a Python number: the graph ends, the device is waited for, and code that depends on the "
    "number is compiled for it",
    "keep it a tensor of no dimensions and compute with that (with its .detach(), where later steps do); as a size "
    "(topk, a slice): a fixed size, and a mask over it; as a number of rounds: a fixed one, and a mask that keeps or "
    "drops what they give; a number for a log: return it, and call .item() outside of forward, seldom",
)
PRINT = Advice(
    "print",
    "printing is a side effect that no graph holds",
    "take it out of forward, or print where `not torch.compiler.is_compiling()`; to keep one of tensors and constants "
    "alone (no .item(), no f-string): add print to torch._dynamo.config.reorderable_logging_functions",
)
LOGGING = Advice(
    "logging",
    "a log line or a warning is a side effect that no graph holds",
    "take it out of forward, or say it where `not torch.compiler.is_compiling()`",
)
RANDOM = Advice(
    "random number of Python or NumPy",
    "it is drawn outside of the graph, and what follows is compiled for the number that was drawn",
    "torch.rand, torch.randint, torch.randperm, and torch.where or an index into a stacked tensor to act on it; or "
    "draw outside and pass it in as a tensor",
)
REPEATED = Advice(
    "random number that is drawn once",
    "torch.compile draws it while it compiles, and every later step gets the same one: no break, no error, and not "
    "what eager computes (https://github.com/pytorch/pytorch/issues/145445)",
    RANDOM.remedy,
)
NUMPY = Advice(
    "NumPy",
    "NumPy computes on the CPU and outside of the graph",
    "the function of the same name in torch (torch.clamp for numpy.clip, ...), without .numpy() and from_numpy",
)
SHAPE = Advice(
    "data-dependent shape",
    "how large the result is depends on values: nonzero, a boolean mask, unique",
    "keep the full shape and mask: torch.where(mask, x, 0), a sum weighted by the mask, topk with a fixed k; or pad to "
    "a fixed size",
)
LEFT_OUT = Advice(
    "part that is left out",
    "compile.parts leaves it out (mode: eager) of a part that is compiled, whose graph ends before it",
    "none needed where it is to run uncompiled; else take its entry out of compile.parts",
)
DISABLED = Advice(
    "function kept out of torch.compile",
    "torch.compiler.disable, or graph_break(), asks for the break",
    "take the decorator or the call away; where the function cannot be traced: torch.library.custom_op",
)
BELOW_BREAK = Advice(
    "code of a library below a graph break",
    "the line that calls it was left to Python, and torch compiles by itself what is called there",
    "mend the graph break in your own line first: this one goes with it, or is shown there",
)
LIBRARY = Advice(
    "library call",
    "it is written in C or C++, or marked as not to be traced",
    "compute it once, before forward; where it works on tensors: wrap it as a torch.library.custom_op; or compile what "
    "is around it, compile.scope=parts",
)
CLOCK = Advice(
    "clock",
    "a clock is read outside of the graph, and what follows is compiled for the time that it showed",
    "measure around the compiled call, or with torch.profiler",
)
FILE = Advice("file", "files are read and written outside of any graph", "open it before forward, or after it")
CONTEXT = Advice(
    "context manager",
    "torch.compile cannot enter this one, and a break inside of a with or try leaves what comes after it uncompiled",
    "enter it outside of forward; the ones of torch (no_grad, autocast, ...) may stay",
)
NO_RESUME = Advice(
    "break that torch.compile cannot go on from",
    "inside of a try, say: this is the last line before it, and what comes after runs uncompiled",
    "take what breaks out of the try or with; TORCH_LOGS=graph_breaks shows which line it is",
)
BACKWARD = Advice(
    "backward inside of forward",
    "the gradient of a graph is made after the graph",
    "call backward outside, or torch.func.grad of a function",
)
DEEPCOPY = Advice(
    "deepcopy", "torch.compile does not trace it", "tensor.clone() or tensor.detach().clone(); of a module: in __init__"
)
DATA = Advice("tensor.data", "a write past autograd", "x = f(x), or x.copy_(...) under torch.no_grad()")
GENERATOR = Advice(
    "torch.Generator",
    "a generator is a state outside of the graph",
    "draw without one, and torch.manual_seed outside of forward; or draw outside and pass it in as a tensor",
)
YIELD = Advice(
    "Python generator",
    "one that a graph break interrupts, or that writes to the module, cannot be gone on with",
    "mend the break within it first; or a list, [f(x) for x in xs] and not (f(x) for x in xs), and no yield",
)
SORTED = Advice(
    "sort in Python",
    "Python compares the values, outside of the graph",
    "torch.sort, torch.argsort or topk of one tensor (torch.stack of several); what stays the same: once, in __init__",
)
RECURRENT = Advice(
    "recurrent layer of torch.nn",
    "torch.compile leaves nn.LSTM, nn.GRU and nn.RNN to eager, and what calls them with them",
    "torch._dynamo.config.allow_rnn = True takes it into the graph; or compile what is around it, compile.scope=parts; "
    "or write the steps out with nn.LSTMCell",
)
ONE_HOT = Advice(
    "one_hot without num_classes",
    "how many classes there are depends on values",
    "torch.nn.functional.one_hot(x, num_classes=n)",
)
FREEZING = Advice(
    "requires_grad that is set",
    "what needs a gradient belongs to the graph",
    "set it once, before the first call; within forward: detach(), or torch.no_grad()",
)
SCRIPTED = Advice(
    "torch.jit.script",
    "TorchScript runs outside of Python, where torch.compile cannot follow it",
    "call the plain module: torch.compile takes it as it is",
)
REFUSED = Advice(
    "line that the backend fails on",
    "what was captured is sound, but the compiler behind it cannot take it, and its function runs uncompiled",
    "write it in other operations: x[i] = v with a tensor i as x.index_copy_(0, i.reshape(1), v.reshape(1)) or "
    "torch.where; torch.while_loop forward only; or leave it out, compile.scope=parts",
)
BUILTIN = Advice(
    "Python builtin",
    "torch.compile does not trace this function with these arguments",
    "compute it before forward, or with tensors",
)
# A line that takes a side by a tensor's value: as a statement, or within an expression.
TESTED = r"^(if|elif|assert)\b|\bif\b.*(\.item\(|\b(float|int|bool)\()"
# How NumPy's generators call what they draw.
DRAWN = "integers|choice|shuffle|permut|rand|normal|uniform|standard|exponential|poisson|binomial|beta|gamma"
# Torch's words (number, reason and explanation), the source line (None: any), and what to do.
BREAKS: list[tuple[str, str | None, Advice]] = [
    ("step_unsupported", None, NO_RESUME),
    (r"GB0219|Backend compiler exception", None, REFUSED),
    (r"[Gg]enerator reconstruction", None, YIELD),
    (r"to proxy|opaque object", r"\b[Gg]enerator\b", GENERATOR),
    (r"GB0014|RNN, GRU, or LSTM", None, RECURRENT),
    (r"GB0246|one_hot. with data-dependent", None, ONE_HOT),
    (r"GB0206|setattr\(\) on Tensor\.requires_grad", None, FREEZING),
    (r"GB4695|torch\.jit\.script", None, SCRIPTED),
    ("", r"^print\(", PRINT),
    ("", r"(?<!torch\.)\brandom\.\w+\(|\b(np|numpy)\.random\.", RANDOM),
    ("", r"\bos\.urandom\(|\b(uuid|secrets)\.\w+\(", RANDOM),
    (r"\bRandom\.|class `(System)?Random`|numpy\.random|mtrand", None, RANDOM),
    (r"of class `(Generator|RandomState)`", rf"\.({DRAWN})\w*\(", RANDOM),
    ("python_type", r"^for\b.*\brange\(", RANDOM),  # a drawn number is the one whose type torch does not know
    (r"GB0170|generic_jump|Data-dependent branching", r"^while\b", DATA_LOOP),
    (r"GB0170|GB0155|generic_jump|[Dd]ata-dependent (branching|assertion)", None, TENSOR_BRANCH),
    (r"GB0124|GB0033|GB0109|\.item\(\)|_local_scalar_dense|tolist", r"^(for|while)\b|\brange\(", DATA_LOOP),
    (r"GB0033|_local_scalar_dense", r"\b(np|numpy)\.|\.numpy\(", NUMPY),
    (r"GB0124|GB0033|GB0109|\.item\(\)|_local_scalar_dense|tolist", TESTED, TENSOR_BRANCH),
    (r"GB0124|GB0033|GB0109|\.item\(\)|_local_scalar_dense|tolist", None, ITEM),
    (r"GB0036|Dynamic shape operator|[Dd]ynamic slicing|data.dependent shape", None, SHAPE),
    (r"`print`", None, PRINT),
    ("", r"\bsys\.(stdout|stderr)\.\w+\(|\bpprint\(", PRINT),
    (r"GB0291|logging\.Logger|_warnings\.warn|warnings\.py|logging/__init__", None, LOGGING),
    ("", r"\bwarnings\.warn\(|\b(log|logger|logging)\.\w+\(", LOGGING),
    (r"left out by compile\.parts", None, LEFT_OUT),
    (r"GB0098|GB0025|torch\.compiler\.disable|graph_break\(\)", None, DISABLED),
    (r"GB4198|deepcopy", None, DEEPCOPY),
    ("", r"\bcopy\.copy\(", DEEPCOPY),
    (r"GB0123|Tensor\.backward\(\)", None, BACKWARD),
    (r"GB0056|tensor data attribute", None, DATA),
    (r"GB7650|Generator", None, GENERATOR),
    (r"`open`|TextIOWrapper|BufferedReader", None, FILE),
    (r"GB0142|GB0143|GB0263|context ?manager|contextlib", None, CONTEXT),
    (r"[Nn]um[Pp]y|\bndarray|`ufunc`", None, NUMPY),
    (r"`time\.(?!sleep)", None, CLOCK),
    ("", r"\btorch\.(save|load)\(", FILE),
    ("", r"\bmanual_seed\(", GENERATOR),
    ("", r"\btime\.(?!sleep)\w+\(|\b(datetime|date)\.(now|utcnow|today)\(", CLOCK),
    ("", r"\bsorted\(", SORTED),
    (r"GB0007|GB0008|marked as skipped", None, LIBRARY),
    (r"GB0059|builtin operator", None, BUILTIN),
]

AFTER_BREAK = Advice(
    "value that a graph break brought back",
    "what a break computed in Python (of a tensor: its size) is a constant in the graph after it, which is compiled "
    "for each new one",
    "mend the break in this line (or in what it calls), and this goes with it",
)
FLOAT = Advice(
    "number in an attribute that changes",
    "a number in an attribute of the module is a constant in the graph; another value is another graph",
    'a tensor: self.register_buffer("t", torch.ones(())) and self.t = self.t * 0.99 (of what the network computes its '
    ".detach()); or pass it in as a tensor; what a layer needs as a number (the p of a dropout): apply it yourself, as "
    "a tensor, or change it once an epoch",
)
COUNTER = Advice(
    "attribute counter",
    "a number in an attribute of the module is a constant in the graph; each new value is another graph",
    'self.register_buffer("n", torch.zeros((), dtype=torch.int64)) and self.n = self.n + 1 (with += gradients may be '
    "wrong where forward uses n: https://github.com/pytorch/pytorch/pull/197039), and torch.where where it decides; or "
    "count outside of forward",
)
FLAG = Advice(
    "attribute that changes",
    "what is true or false, text or None in an attribute of the module is a constant in the graph; each new one is "
    "another graph",
    "none needed for two, each of which is compiled once; what is made at the first call: make it in __init__; for "
    "many: a tensor, or set it outside of forward",
)
CACHE = Advice(
    "dict that grows",
    "which keys a dict in an attribute has is a condition of the graph; each new one is another graph",
    "compute what it would hold: within a graph that is cheap; or fill it in __init__",
)
GROWING = Advice(
    "list, tuple, dict or set that changes",
    "how long it is, and where it holds numbers or text what it holds, is a constant in the graph; each new content is "
    "another graph",
    "a buffer of fixed size written by index_copy_; or return the value and collect outside of forward; or fill it in "
    "__init__, once",
)
OTHER_SIZE = Advice(
    "module of another size",
    "modules of one class share their code, and what was compiled for the parameters of one does not hold for others",
    "none needed for a few sizes: each is compiled once; for many: take away the graph break before this line, so that "
    "all are in one graph; compile.max_recompiles=20 raises torch's limit of 8",
)
BATCH_SHAPE = Advice(
    "shape that changes",
    "the graph was compiled for another size",
    "compile.dynamic=true, or where the whole network is compiled compile.mark_dynamic for the one dimension "
    "(torch._dynamo.mark_dynamic); better, pad to few sizes; the last, short batch of an epoch: drop it, or fill it "
    "up; compile.max_recompiles bounds it",
)
FIXED_SIZE = Advice(
    "size that the network fixes",
    "sizes are open, but Python code takes this one as a number: a range, a list, the key of a dict, a condition on it",
    "keep it out of Python: torch.arange(x.shape[0], device=x.device) and operations on whole tensors; or pad to few "
    "sizes; compile.max_recompiles bounds it",
)
BOUNDS = Advice(
    "size out of bounds",
    "the graph holds for sizes within bounds: those of compile.mark_dynamic, or of a comparison in the network; one of "
    "1 is always a graph of its own",
    "a larger max (or smaller min) in compile.mark_dynamic, or none; else none needed: one graph on each side",
)
EQUAL_SIZES = Advice(
    "sizes that were equal",
    "two sizes that happened to be equal at the first call were taken for one (duck sizing)",
    "none needed: it is compiled once more; to save that, a batch size that is no other size of the network",
)
RANK = Advice(
    "number of dimensions that changes",
    "a graph holds for one number of dimensions",
    "give tensors of one: unsqueeze or flatten before",
)
LAYOUT = Advice("strides that change", "the graph was compiled for another layout", "x.contiguous() before the call")
DTYPE = Advice(
    "dtype or device that changes", "a graph holds for one type and device", "cast before the call, always to the same"
)
GRAD = Advice(
    "requires_grad or grad mode that changes",
    "training and evaluation, and inputs with and without gradient, are graphs of their own",
    "none needed for one graph each of training and validation; in a loop: always the same torch.no_grad()",
)
TRAINING = Advice(
    "train() and eval()", "both are graphs of their own", "none needed: one graph for each; do not switch within a step"
)
ARGUMENT = Advice(
    "argument or global number that changes",
    "a Python number is a constant in the graph; each new value is another graph",
    "pass it as a tensor, torch.tensor(k); an int that is an argument: compile.dynamic=true; of a global or a class: a "
    "buffer of the module, or count outside of forward",
)
OBJECT = Advice(
    "another object than before",
    "the graph was compiled for one module, function or object",
    "call the same object each time; make functions and lambdas once, in __init__",
)
STATE = Advice(
    "global state of torch that changes",
    "autocast, deterministic mode, the number of threads and the default dtype belong to the graph",
    "set it once, before the first call",
)
RECOMPILES: list[tuple[str, Advice]] = [
    (r"___stack\d+", AFTER_BREAK),
    (r"\b_(parameters|buffers)\[.* (size|rank|stride) mismatch", OTHER_SIZE),
    (r"\d <= \S*\.size\(\)\[\d+\]|\.size\(\)\[\d+\] <= \d", BOUNDS),
    (r"\.size\(\)\[\d+\] == \S*\.size\(\)\[\d+\]", EQUAL_SIZES),
    (r"size mismatch|\.size\(\)\[|\.shape\[", BATCH_SHAPE),
    (r"rank mismatch", RANK),
    (r"stride mismatch|\.stride\(\)|storage_offset", LAYOUT),
    (r"\bself\S*\.training\b|\.training\b", TRAINING),
    (r"requires_grad mismatch|grad_mode|GradMode|inference", GRAD),
    (r"dtype mismatch|device mismatch|dispatch key set mismatch", DTYPE),
    (r"GLOBAL_STATE|autocast|deterministic|torch_function|default_dtype|num_threads", STATE),
    (r"\blen\(|^\d+/\d+: not self\b", GROWING),
    (r"___dict_contains", CACHE),
    (r"\bself\S* == ([(\[{]|set\()", GROWING),
    (r"hasattr", FLAG),
    (r"\bself\b\S*\]\)? == -?\d", FLOAT),
    (r"\bself\b\S*\.\w+ == (True|False|['\"])|\bself\b\S*\.\w+ is (not )?None", FLAG),
    (r"\bself\b\S*\.\w+\)? == -?\d+(\.\d|e-?\d)", FLOAT),
    (r"\bself\b\S*\.\w+ == -?\d|integer attributes of the nn\.Module", COUNTER),
    (r"== .* resumed$", AFTER_BREAK),
    (r"[\w\]] [!=]= (-?[\d.]|['\"])", ARGUMENT),
    (r"___check_obj_id|___check_type_id|is not |type\(", OBJECT),
]
SIZES = (BATCH_SHAPE, FIXED_SIZE, BOUNDS, EQUAL_SIZES, RANK, LAYOUT)  # of which a batch's shapes are the cause

NO_DEVICE = Advice(
    "tensor on the CPU",
    "a CUDA graph holds work of one CUDA device alone",
    "make tensors on the network's device (torch.arange(n, device=x.device)), register constants as buffers, keep "
    ".cpu() out of forward; without a GPU: compile.mode=default",
)
MUTATION = Advice(
    "input that is written to",
    "a CUDA graph is replayed on copies of its inputs, and a write would reach the copy",
    "x = x + 1 and not x += 1 on what comes from outside, or x = x.clone() first; state of the module: a buffer",
)
DYNAMIC = Advice(
    "dynamic shapes",
    "a CUDA graph holds for one shape",
    "compile.dynamic=false, few padded sizes; or mode default",
)
INCOMPATIBLE = Advice(
    "operation that no CUDA graph holds",
    "it waits for the device, or its result's size depends on values",
    "take it out of the compiled part, or mask and keep the size (torch.where)",
)
RERECORDED = Advice(
    "inputs that lie elsewhere each time",
    "the graph was recorded anew for each new address until torch gave up",
    "pass parameters and buffers of the module, and copy inputs into one tensor that stays",
)
PENDING = Advice(
    "backward that is still to come",
    "the outputs of the step before are still needed",
    "torch.compiler.cudagraph_mark_step_begin() before each step; clone what is kept beyond it",
)
CPP = Advice(
    "C++ wrapper", "inductor's cpp_wrapper records no CUDA graphs", "leave torch._inductor.config.cpp_wrapper false"
)
DEVICES = Advice(
    "several devices", "a CUDA graph holds work of one device", "keep the compiled part on one device; one rank each"
)
SKIPS: list[tuple[str, Advice]] = [
    (r"multiple devices", DEVICES),
    (r"\bcpu device|CUDA graphs need a CUDA device|multiple device.*cpu", NO_DEVICE),
    (r"mutat", MUTATION),
    (r"symbolic|dynamic shape", DYNAMIC),
    (r"re-?recording limit", RERECORDED),
    (r"pending, uninvoked backwards|pending", PENDING),
    (r"cpp.?wrapper", CPP),
    (r"incompatible op|unsafe|custom op|control flow", INCOMPATIBLE),
]


def of_break(site: GraphBreak) -> Advice:
    """What to do about a graph break of a row or of facts: `reason`, and where known `id`, `explanation`, `code`."""
    words = " ".join([site.id or "", site.reason, site.explanation])
    words = re.sub(r"\(e\.g\. [^)]*\)", "", words)  # torch's examples are of other causes
    code = re.sub(r"\s#.*", "", site.code)
    for said, written, advice in BREAKS:
        if re.search(said, words) and (written is None or re.search(written, code)):
            return advice
    page = f"https://meta-pytorch.github.io/compile-graph-break-site/gb/{str(site.id).lower()}.html"
    return Advice(
        site.reason or "unknown",
        site.explanation or "torch gives no explanation",
        f"see {page}" if site.id else "TORCH_LOGS=graph_breaks shows what torch knows",
    )


def of_recompile(reason: str, dynamic: bool | None = None) -> Advice:
    """What to do about a recompile, by torch's words for the guard that failed, with compile.dynamic as it was."""
    unknown = Advice(
        "guard that failed", "the graph was compiled under another condition", "keep what it names the same"
    )
    words = guard(reason)
    words += " integer attributes of the nn.Module" * ("integer attributes of the nn.Module" in reason)
    words += " resumed" * ("torch_dynamo_resume_in" in reason)
    found = next((advice for said, advice in RECOMPILES if re.search(said, words)), unknown)
    return FIXED_SIZE if found is BATCH_SHAPE and dynamic else found


def guard(reason: str) -> str:
    """The guard that failed, without torch's comment: the source line of the guard, whose words are the user's."""
    return " ".join(line.partition(" # ")[0].strip() for line in reason.splitlines()[:1]) or reason


def of_skip(reason: str) -> Advice:
    """What to do where CUDA graphs were skipped, by torch's words for why."""
    unknown = Advice(
        "CUDA graphs skipped", "torch could not record this part", "compile.mode=default loses nothing here"
    )
    return next((advice for said, advice in SKIPS if re.search(said, reason)), unknown)
