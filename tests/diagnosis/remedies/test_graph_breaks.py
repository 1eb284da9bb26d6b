"""Messages of torch 2.11 and 2.13 for graph breaks, shortened to their distinctive words, and their remedies."""

import random

import pytest

from trainkit.diagnosis.remedies.graph_breaks import BREAK_REMEDIES, break_message, remedy_for_break
from trainkit.diagnosis.remedies.matching import matching
from trainkit.results.facts import GraphBreak

SKIPPED = "Attempted to call function marked as skipped"
BUILTIN = "Failed to trace builtin operator"
# Reason, number, explanation and source line, then the remedy's cause. The first of two is 2.11's.
BREAKS = [
    ("generic_jump TensorVariable()", None, "", "if y.sum() > 0:", "tensor branch"),
    ("Data-dependent branching", "GB0170", "Detected data-dependent branching", "if a:", "tensor branch"),
    ("generic_jump TensorVariable()", None, "", "while y.norm() > 1:", "data-dependent loop"),
    ("Unsupported Tensor.item() call with capture_scalar_outputs=False", "GB0124", "", "s = y.item()", ".item()"),
    ("Unsupported Tensor.item() call with capture_scalar_outputs=False", None, "", None, ".item()"),
    ("Tensor.tolist() with non-integer tensor", "GB0109", "", "k = y.tolist()", ".item()"),
    ("Unsupported Tensor.item() call", "GB0124", "", "for k in range(int(y.argmax())):", "data-dependent loop"),
    ("Unsupported Tensor.item() call", "GB0124", "", "if h.mean().item() > limit:", "tensor branch"),
    ("Unsupported Tensor.item() call", "GB0124", "", "elif float(h.mean()) > 1:", "tensor branch"),
    ("Unsupported Tensor.item() call", "GB0124", "", "h = h * 2 if h.mean().item() > 1 else h", "tensor branch"),
    ("Unsupported Tensor.item() call", "GB0124", "", "n = y.item() if limit else 0", ".item()"),
    ("Data dependent operator", "GB0033", "Operator `aten._local_scalar_dense.default`", "float(y)", ".item()"),
    ("Data dependent operator", "GB0033", "", "if np.random.rand() > 0.5:", "random number of Python or NumPy"),
    ("Data dependent operator", "GB0033", "", "s = float(np.mean(y.numpy()))", "NumPy"),
    (
        SKIPPED,
        "GB0007",
        "Dynamo does not know how to trace the builtin `Random.random`",
        "r = draw()",
        "random number of Python or NumPy",
    ),
    (SKIPPED, "GB0007", "builtin `x` (e.g. _warnings.warn)", "k = crc32(b)", "library call"),
    (SKIPPED, "GB0007", "Dynamo does not know how to trace the Python builtin `_warnings.warn`.", "", "logging"),
    (SKIPPED, "GB0007", "", "start = time.time()", "clock"),
    (SKIPPED, "GB0007", "", "time.sleep(1)", "library call"),
    (SKIPPED, "GB0007", "", "k = crc32(b)  # not np.random.rand()", "library call"),
    (
        "Dynamic shape operator",
        "GB0036",
        "Operator `aten.nonzero.default`'s output shape",
        "y[y > 0]",
        "data-dependent shape",
    ),
    (BUILTIN, "GB0059", "Dynamo does not know how to trace builtin operator `print`", "print(y)", "print"),
    (BUILTIN, "GB0059", "Dynamo does not know how to trace builtin operator `open`", "open(p)", "file"),
    (BUILTIN, "GB0059", "Dynamo does not know how to trace builtin operator `hex`", "hex(k)", "Python builtin"),
    ("logging.Logger method not supported for non-export cases", "GB0291", "", "log.info(1)", "logging"),
    ("step_unsupported", None, "", "try:", "break that torch.compile cannot go on from"),
    (
        "Skip calling `torch.compiler.disable()`d function",
        "GB0098",
        "",
        "y = f(y)",
        "function kept out of torch.compile",
    ),
    ("Call to `torch._dynamo.graph_break()`", "GB0025", "", "", "function kept out of torch.compile"),
    (
        "Unsupported context manager",
        "GB0142",
        "Dynamo does not know how to enter a `lock`",
        "with l:",
        "context manager",
    ),
    (
        "Attempted to use `torch.nn.Parameter()` constructor with Dynamo",
        "GB0264",
        "Dynamo does not support this",
        "return nn.Linear(4, 4)(x)",
        "layer that is made in forward",
    ),
    ("copy.deepcopy()", None, "Dynamo does not support copy.deepcopy()", "", "deepcopy"),
    ("Attempted to copy.deepcopy a tensor", "GB4198", "", "", "deepcopy"),
    ("Unsupported Tensor.backward() call", "GB0123", "", "", "backward inside of forward"),
    ("Failed to mutate tensor data attribute", "GB0056", "", "y.data = y", "tensor.data"),
    ("Unsupported method call", "GB0156", "trace method `manual_seed` of class `Generator`", "", "torch.Generator"),
    (
        "Unsupported method call",
        "GB0156",
        "method `integers` of class `Generator`",
        "rng.integers(3)",
        "random number of Python or NumPy",
    ),
    (
        "Unsupported method call",
        "GB0156",
        "method `choice` of class `Random`",
        "self.rng.choice(kinds)",
        "random number of Python or NumPy",
    ),
    ("Unsupported method call", "GB0156", "method `write` of class `TextIO`", "sys.stdout.write(s)", "print"),
    ("Unsupported method call", "GB0156", "trace method `now` of class `type`", "t = datetime.now()", "clock"),
    ("Unsupported method call", "GB0156", "method `__call__` of class `ufunc`", "scipy.special.erf(1)", "NumPy"),
    ("Unsupported ndarray attribute access", "GB0157", "tracing `ndarray.dtype`", "a = blur(b)", "NumPy"),
    (SKIPPED, "GB0007", "to trace the builtin `time.perf_counter.`", "t = perf_counter()", "clock"),
    (SKIPPED, "GB0007", "", "torch.save(y, p)", "file"),
    (SKIPPED, "GB0007", "", "torch.manual_seed(0)", "torch.Generator"),
    ("Unsupported Tensor.item() call", "GB0124", "", 'print(f"{y.mean().item():.3f}")', "print"),
    ("Unsupported python_type() call", "GB4841", "", "for _ in range(n):", "random number of Python or NumPy"),
    ("Attempted to wrap RNN, GRU, or LSTM", "GB0014", "", "self.rnn(y)", "recurrent layer of torch.nn"),
    (
        "Attempted to use `torch.nn.functional.one_hot` with data-dependent output shape",
        "GB0246",
        "",
        "",
        "one_hot without num_classes",
    ),
    ("setattr() on Tensor.requires_grad", "GB0206", "", "p.requires_grad = False", "requires_grad that is set"),
    ("torch.jit.script/freeze modules unsupported", "GB4695", "", "self.s(y)", "torch.jit.script"),
    (
        "Backend compiler exception",
        "GB0219",
        "failed with aten._local_scalar_dense",
        "q[i] = y",
        "line that the backend fails on",
    ),
    ("torch.Generator method", "GB7650", "", "", "torch.Generator"),
    ("Generator reconstruction with mutations", "GB0087", "to fully exhaust the generator", "", "Python generator"),
    ("Failed to convert args/kwargs to proxy", "GB0093", "", "torch.rand(2, generator=self.g)", "torch.Generator"),
    (SKIPPED, "GB0007", "the builtin `posix.urandom.`", "seed = os.urandom(4)", "random number of Python or NumPy"),
    (SKIPPED, "GB0007", "", "name = uuid.uuid4()", "random number of Python or NumPy"),
    ("Unsupported function call", "GB0147", "", "sorted(rows, key=norm)", "sort in Python"),
]


def graph_break(reason: str, number: str | None, explanation: str, code: str | None) -> GraphBreak:
    return GraphBreak(reason=reason, id=number, explanation=explanation, code=code or "")


@pytest.mark.parametrize(("reason", "number", "explanation", "code", "cause"), BREAKS)
def test_a_graph_break_has_exactly_one_remedy(reason, number, explanation, code, cause):
    recorded = graph_break(reason, number, explanation, code)
    assert [remedy.cause for remedy in matching(BREAK_REMEDIES, *break_message(recorded))] == [cause]
    assert remedy_for_break(recorded).cause == cause


def test_the_order_of_the_remedies_changes_nothing():
    for seed in range(5):
        shuffled = random.Random(seed).sample(BREAK_REMEDIES, len(BREAK_REMEDIES))
        for *recorded, cause in BREAKS:
            (remedy,) = matching(shuffled, *break_message(graph_break(*recorded)))
            assert remedy.cause == cause


def test_a_break_of_a_row_from_before_numbers_were_kept():
    recorded = GraphBreak("a.py", 1, "generic_jump TensorVariable()")
    assert remedy_for_break(recorded).cause == "tensor branch"


def test_an_unknown_break_gets_torchs_words_and_page():
    remedy = remedy_for_break(graph_break("Something new", "GB9999", "It is new.", "f(x)"))
    assert (remedy.cause, remedy.why) == ("Something new", "It is new.")
    assert remedy.fix.endswith("/gb/gb9999.html")
