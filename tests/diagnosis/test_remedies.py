"""What torch 2.11 and 2.13 say, its words shortened to those that tell, and what is to be done about it."""

import pytest

from trainkit.diagnosis import remedies
from trainkit.results.facts import GraphBreak

SKIPPED = "Attempted to call function marked as skipped"
BUILTIN = "Failed to trace builtin operator"
# Reason, number, explanation and source line, then the advice. The first of two is 2.11's.
BREAKS = [
    ("generic_jump TensorVariable()", None, "", "if y.sum() > 0:", remedies.TENSOR_BRANCH),
    ("Data-dependent branching", "GB0170", "Detected data-dependent branching", "if a:", remedies.TENSOR_BRANCH),
    ("generic_jump TensorVariable()", None, "", "while y.norm() > 1:", remedies.DATA_LOOP),
    ("Unsupported Tensor.item() call with capture_scalar_outputs=False", "GB0124", "", "s = y.item()", remedies.ITEM),
    ("Unsupported Tensor.item() call with capture_scalar_outputs=False", None, "", None, remedies.ITEM),
    ("Tensor.tolist() with non-integer tensor", "GB0109", "", "k = y.tolist()", remedies.ITEM),
    ("Unsupported Tensor.item() call", "GB0124", "", "for k in range(int(y.argmax())):", remedies.DATA_LOOP),
    ("Unsupported Tensor.item() call", "GB0124", "", "if h.mean().item() > limit:", remedies.TENSOR_BRANCH),
    ("Unsupported Tensor.item() call", "GB0124", "", "elif float(h.mean()) > 1:", remedies.TENSOR_BRANCH),
    ("Unsupported Tensor.item() call", "GB0124", "", "h = h * 2 if h.mean().item() > 1 else h", remedies.TENSOR_BRANCH),
    ("Unsupported Tensor.item() call", "GB0124", "", "n = y.item() if limit else 0", remedies.ITEM),
    ("Data dependent operator", "GB0033", "Operator `aten._local_scalar_dense.default`", "float(y)", remedies.ITEM),
    ("Data dependent operator", "GB0033", "", "if np.random.rand() > 0.5:", remedies.RANDOM),
    ("Data dependent operator", "GB0033", "", "s = float(np.mean(y.numpy()))", remedies.NUMPY),
    (SKIPPED, "GB0007", "Dynamo does not know how to trace the builtin `Random.random`", "r = draw()", remedies.RANDOM),
    (SKIPPED, "GB0007", "builtin `x` (e.g. _warnings.warn)", "k = crc32(b)", remedies.LIBRARY),
    (SKIPPED, "GB0007", "Dynamo does not know how to trace the Python builtin `_warnings.warn`.", "", remedies.LOGGING),
    (SKIPPED, "GB0007", "", "start = time.time()", remedies.CLOCK),
    (SKIPPED, "GB0007", "", "time.sleep(1)", remedies.LIBRARY),
    (SKIPPED, "GB0007", "", "k = crc32(b)  # not np.random.rand()", remedies.LIBRARY),
    ("Dynamic shape operator", "GB0036", "Operator `aten.nonzero.default`'s output shape", "y[y > 0]", remedies.SHAPE),
    (BUILTIN, "GB0059", "Dynamo does not know how to trace builtin operator `print`", "print(y)", remedies.PRINT),
    (BUILTIN, "GB0059", "Dynamo does not know how to trace builtin operator `open`", "open(p)", remedies.FILE),
    (BUILTIN, "GB0059", "Dynamo does not know how to trace builtin operator `hex`", "hex(k)", remedies.BUILTIN),
    ("logging.Logger method not supported for non-export cases", "GB0291", "", "log.info(1)", remedies.LOGGING),
    ("step_unsupported", None, "", "try:", remedies.NO_RESUME),
    ("Skip calling `torch.compiler.disable()`d function", "GB0098", "", "y = f(y)", remedies.DISABLED),
    ("Call to `torch._dynamo.graph_break()`", "GB0025", "", "", remedies.DISABLED),
    (
        "Unsupported context manager",
        "GB0142",
        "Dynamo does not know how to enter a `lock`",
        "with l:",
        remedies.CONTEXT,
    ),
    ("copy.deepcopy()", None, "Dynamo does not support copy.deepcopy()", "", remedies.DEEPCOPY),
    ("Attempted to copy.deepcopy a tensor", "GB4198", "", "", remedies.DEEPCOPY),
    ("Unsupported Tensor.backward() call", "GB0123", "", "", remedies.BACKWARD),
    ("Failed to mutate tensor data attribute", "GB0056", "", "y.data = y", remedies.DATA),
    ("Unsupported method call", "GB0156", "trace method `manual_seed` of class `Generator`", "", remedies.GENERATOR),
    ("Unsupported method call", "GB0156", "method `integers` of class `Generator`", "rng.integers(3)", remedies.RANDOM),
    (
        "Unsupported method call",
        "GB0156",
        "method `choice` of class `Random`",
        "self.rng.choice(kinds)",
        remedies.RANDOM,
    ),
    ("Unsupported method call", "GB0156", "method `write` of class `TextIO`", "sys.stdout.write(s)", remedies.PRINT),
    ("Unsupported method call", "GB0156", "trace method `now` of class `type`", "t = datetime.now()", remedies.CLOCK),
    ("Unsupported method call", "GB0156", "method `__call__` of class `ufunc`", "scipy.special.erf(1)", remedies.NUMPY),
    ("Unsupported ndarray attribute access", "GB0157", "tracing `ndarray.dtype`", "a = blur(b)", remedies.NUMPY),
    (SKIPPED, "GB0007", "to trace the builtin `time.perf_counter.`", "t = perf_counter()", remedies.CLOCK),
    (SKIPPED, "GB0007", "", "torch.save(y, p)", remedies.FILE),
    (SKIPPED, "GB0007", "", "torch.manual_seed(0)", remedies.GENERATOR),
    ("Unsupported Tensor.item() call", "GB0124", "", 'print(f"{y.mean().item():.3f}")', remedies.PRINT),
    ("Unsupported python_type() call", "GB4841", "", "for _ in range(n):", remedies.RANDOM),
    ("Attempted to wrap RNN, GRU, or LSTM", "GB0014", "", "self.rnn(y)", remedies.RECURRENT),
    (
        "Attempted to use `torch.nn.functional.one_hot` with data-dependent output shape",
        "GB0246",
        "",
        "",
        remedies.ONE_HOT,
    ),
    ("setattr() on Tensor.requires_grad", "GB0206", "", "p.requires_grad = False", remedies.FREEZING),
    ("torch.jit.script/freeze modules unsupported", "GB4695", "", "self.s(y)", remedies.SCRIPTED),
    ("Backend compiler exception", "GB0219", "failed with aten._local_scalar_dense", "q[i] = y", remedies.REFUSED),
    ("torch.Generator method", "GB7650", "", "", remedies.GENERATOR),
    ("Generator reconstruction with mutations", "GB0087", "to fully exhaust the generator", "", remedies.YIELD),
    ("Failed to convert args/kwargs to proxy", "GB0093", "", "torch.rand(2, generator=self.g)", remedies.GENERATOR),
    (SKIPPED, "GB0007", "the builtin `posix.urandom.`", "seed = os.urandom(4)", remedies.RANDOM),
    (SKIPPED, "GB0007", "", "name = uuid.uuid4()", remedies.RANDOM),
    ("Unsupported function call", "GB0147", "", "sorted(rows, key=norm)", remedies.SORTED),
]
RECOMPILES = [
    ("0/0: tensor 'x' size mismatch at index 0. expected 16, actual 9", remedies.BATCH_SHAPE),
    ("0/0: 2 <= inputs.size()[0] <= 32  # y = f(x)  # net.py:5 in forward (user code shown is ...)", remedies.BOUNDS),
    ("0/0: L['x'].size()[0] <= 32  # if x.shape[0] > 32:  # net.py:5 in forward", remedies.BOUNDS),
    ("0/0: 33 <= x.size()[0]  # if x.shape[0] > 32:  # net.py:5 in forward", remedies.BOUNDS),
    ("0/0: x.size()[1] == x.size()[0]  # duck sizing added this equality", remedies.EQUAL_SIZES),
    ("0/0: L['x'].size()[2] == L['y'].size()[0]  # duck sizing added this equality", remedies.EQUAL_SIZES),
    ("0/0: (x.size()[0] % 8) == 0  # if x.shape[0] % 8 == 0:", remedies.BATCH_SHAPE),
    ("0/0: tensor 'x' rank mismatch. expected 2, actual 3", remedies.RANK),
    ("0/0: tensor 'x' stride mismatch at index 0. expected 8, actual 1", remedies.LAYOUT),
    ("0/0: tensor 'x' dtype mismatch. expected Float, actual Double", remedies.DTYPE),
    ("0/0: tensor 'x' requires_grad mismatch. expected requires_grad=0", remedies.GRAD),
    ("0/0: GLOBAL_STATE changed: grad_mode ", remedies.GRAD),
    ("0/0: GLOBAL_STATE changed: autocast ", remedies.STATE),
    ("0/0: tensor 'self._modules['fc']._parameters['bias']' size mismatch at index 0.", remedies.OTHER_SIZE),
    ("1/0: tensor 'self._buffers['scale']' size mismatch at index 0. expected 5, actual 7", remedies.OTHER_SIZE),
    ("0/0: self.temperature == 1.0  # self.temperature *= 0.99  # net.py:5 in forward", remedies.FLOAT),
    ("0/0: self.net.rate == -1e-05  # self.rate *= 0.99  # net.py:5 in forward", remedies.FLOAT),
    ("0/1: (0.95*self._modules['net']._modules['drop'].p) == 0.45125  # F.dropout(y, self.p)", remedies.FLOAT),
    ("0/0: self._modules['net'].rates['a'] == 0.5  # y * self.rates['a']", remedies.FLOAT),
    ("0/0: self._modules['net'].seen == ()  # self.seen += (1,)", remedies.GROWING),
    ("0/0: d != 0  # if d == 0:", remedies.ARGUMENT),
    ("0/0: not hasattr(self._modules['net'], 'h')  # if not hasattr(self, 'h'):", remedies.FLAG),
    ("0/0: self._modules['net'].flip == False  # self.flip = not self.flip", remedies.FLAG),
    ("0/0: self._modules['net'].tag == 'a'  # self.tag += 'a'", remedies.FLAG),
    ("0/0: self._modules['net'].h is None  # if self.h is None:", remedies.FLAG),
    ("0/0: not ___dict_contains((16, 10), self._modules['net'].cache)  # if key not in self.cache:", remedies.CACHE),
    ("0/0: self.training == True", remedies.TRAINING),
    ("0/0: self.net.calls == 0   # self.calls += 1  # net.py:5 in forward (HINT: ...)", remedies.COUNTER),
    ("0/0: self._modules['net'].calls == 0  # self.calls += 1  # net.py:5 in forward", remedies.COUNTER),
    ("0/0: not self._modules['net'].seen  # self.seen.append(y)", remedies.GROWING),
    ("0/1: len(self.net.seen) == 1  # self.seen.append(y)", remedies.GROWING),
    ("0/0: self._modules['net'].seen == set()  # self.seen.add(n)", remedies.GROWING),
    ("0/0: k == 3  # return x * k  # net.py:9 in forward", remedies.ARGUMENT),
    ("0/0: L['k'] == 3  # return x * k  # net.py:9 in forward", remedies.ARGUMENT),
    ("0/0: G['net'].CALLS == 1  # CALLS += 1", remedies.ARGUMENT),
    (
        "2/0: ___stack0 == -3.79  # return y * s  # net.py:22 in torch_dynamo_resume_in_forward_at_21",
        remedies.AFTER_BREAK,
    ),
    (
        "2/0: order[0] == 4  # return y[order]  # net.py:61 in torch_dynamo_resume_in_forward_at_60",
        remedies.AFTER_BREAK,
    ),
    ("2/0: tensor '___stack0' size mismatch at index 0. expected 76, actual 70", remedies.AFTER_BREAK),
    ("0/0: ___check_obj_id(self.f, 94)", remedies.OBJECT),
]
SKIPS = [
    ("skipping cudagraphs due to cpu device (arg0_1). Found from : \n File 'net.py', line 3", remedies.NO_DEVICE),
    ("CUDA graphs did not take effect: CUDA graphs need a CUDA device", remedies.NO_DEVICE),
    ("skipping cudagraphs due to multiple devices: device(type='cuda', index=0), cuda:1", remedies.DEVICES),
    ("skipping cudagraphs due to mutated inputs (1 instances). Found from : \n ...", remedies.MUTATION),
    ("skipping cudagraphs due to input storage mutation (1 instances)", remedies.MUTATION),
    ("skipping cudagraphs due to graph with symbolic shapes inputs and config....", remedies.DYNAMIC),
    (
        "skipping cudagraphs due to disabling cudagraphs due to incompatible op aten.nonzero.default",
        remedies.INCOMPATIBLE,
    ),
    ("skipping cudagraph due to function 3 exceeding max re-recording limit (=128) on ...", remedies.RERECORDED),
    ("skipping cudagraphs due to cpp wrapper enabled", remedies.CPP),
    ("skipping cudagraphs due to cpp-wrapper does not support graph partition yet", remedies.CPP),
]


@pytest.mark.parametrize(("reason", "number", "explanation", "code", "expected"), BREAKS)
def test_a_graph_break(reason, number, explanation, code, expected):
    assert remedies.of_break(GraphBreak(reason=reason, id=number, explanation=explanation, code=code or "")) is expected


def test_a_break_of_a_row_from_before_numbers_were_kept():
    assert remedies.of_break(GraphBreak("a.py", 1, "generic_jump TensorVariable()")) is remedies.TENSOR_BRANCH


def test_a_break_that_no_rule_knows_gets_torchs_words_and_page():
    told = remedies.of_break(GraphBreak(reason="Something new", id="GB9999", explanation="It is new.", code="f(x)"))
    assert (told.cause, told.why) == ("Something new", "It is new.")
    assert told.remedy.endswith("/gb/gb9999.html")


@pytest.mark.parametrize(("reason", "expected"), RECOMPILES)
def test_a_recompile(reason, expected):
    assert remedies.of_recompile(reason) is expected


def test_a_size_that_changes_though_sizes_are_open_is_fixed_by_the_network():
    reason = "0/0: x.size()[0] == 16  # for k in range(x.shape[0]):"
    told = [remedies.of_recompile(reason, dynamic) for dynamic in (True, False, None)]
    assert told == [remedies.FIXED_SIZE, remedies.BATCH_SHAPE, remedies.BATCH_SHAPE]


def test_of_a_tensor_that_a_break_brought_back_the_size_is_the_constant():
    told = remedies.of_recompile("2/0: tensor '___stack1' size mismatch at index 0. expected 256, actual 247")
    assert "of a tensor: its size" in told.why


@pytest.mark.parametrize(("reason", "expected"), SKIPS)
def test_a_skipped_cuda_graph(reason, expected):
    assert remedies.of_skip(reason) is expected


def test_every_cause_has_a_name_of_its_own():
    told = [thing for thing in vars(remedies).values() if isinstance(thing, remedies.Advice)]
    assert len({one.cause for one in told}) == len(told) > 30
