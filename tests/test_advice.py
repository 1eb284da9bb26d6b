"""What torch 2.11 and 2.13 say, its words shortened to those that tell, and what is to be done about it."""

import pytest

from trainkit import advice

SKIPPED = "Attempted to call function marked as skipped"
BUILTIN = "Failed to trace builtin operator"
# Reason, number, explanation and source line, then the advice. The first of two is 2.11's.
BREAKS = [
    ("generic_jump TensorVariable()", None, "", "if y.sum() > 0:", advice.TENSOR_BRANCH),
    ("Data-dependent branching", "GB0170", "Detected data-dependent branching", "if a:", advice.TENSOR_BRANCH),
    ("generic_jump TensorVariable()", None, "", "while y.norm() > 1:", advice.DATA_LOOP),
    ("Unsupported Tensor.item() call with capture_scalar_outputs=False", "GB0124", "", "s = y.item()", advice.ITEM),
    ("Unsupported Tensor.item() call with capture_scalar_outputs=False", None, "", None, advice.ITEM),
    ("Tensor.tolist() with non-integer tensor", "GB0109", "", "k = y.tolist()", advice.ITEM),
    ("Unsupported Tensor.item() call", "GB0124", "", "for k in range(int(y.argmax())):", advice.DATA_LOOP),
    ("Unsupported Tensor.item() call", "GB0124", "", "if h.mean().item() > limit:", advice.TENSOR_BRANCH),
    ("Unsupported Tensor.item() call", "GB0124", "", "elif float(h.mean()) > 1:", advice.TENSOR_BRANCH),
    ("Unsupported Tensor.item() call", "GB0124", "", "h = h * 2 if h.mean().item() > 1 else h", advice.TENSOR_BRANCH),
    ("Unsupported Tensor.item() call", "GB0124", "", "n = y.item() if limit else 0", advice.ITEM),
    ("Data dependent operator", "GB0033", "Operator `aten._local_scalar_dense.default`", "float(y)", advice.ITEM),
    ("Data dependent operator", "GB0033", "", "if np.random.rand() > 0.5:", advice.RANDOM),
    ("Data dependent operator", "GB0033", "", "s = float(np.mean(y.numpy()))", advice.NUMPY),
    (SKIPPED, "GB0007", "Dynamo does not know how to trace the builtin `Random.random`", "r = draw()", advice.RANDOM),
    (SKIPPED, "GB0007", "builtin `x` (e.g. _warnings.warn)", "k = crc32(b)", advice.LIBRARY),
    (SKIPPED, "GB0007", "Dynamo does not know how to trace the Python builtin `_warnings.warn`.", "", advice.LOGGING),
    (SKIPPED, "GB0007", "", "start = time.time()", advice.CLOCK),
    (SKIPPED, "GB0007", "", "time.sleep(1)", advice.LIBRARY),
    (SKIPPED, "GB0007", "", "k = crc32(b)  # not np.random.rand()", advice.LIBRARY),
    ("Dynamic shape operator", "GB0036", "Operator `aten.nonzero.default`'s output shape", "y[y > 0]", advice.SHAPE),
    (BUILTIN, "GB0059", "Dynamo does not know how to trace builtin operator `print`", "print(y)", advice.PRINT),
    (BUILTIN, "GB0059", "Dynamo does not know how to trace builtin operator `open`", "open(p)", advice.FILE),
    (BUILTIN, "GB0059", "Dynamo does not know how to trace builtin operator `hex`", "hex(k)", advice.BUILTIN),
    ("logging.Logger method not supported for non-export cases", "GB0291", "", "log.info(1)", advice.LOGGING),
    ("step_unsupported", None, "", "try:", advice.NO_RESUME),
    ("Skip calling `torch.compiler.disable()`d function", "GB0098", "", "y = f(y)", advice.DISABLED),
    ("Call to `torch._dynamo.graph_break()`", "GB0025", "", "", advice.DISABLED),
    ("Unsupported context manager", "GB0142", "Dynamo does not know how to enter a `lock`", "with l:", advice.CONTEXT),
    ("copy.deepcopy()", None, "Dynamo does not support copy.deepcopy()", "", advice.DEEPCOPY),
    ("Attempted to copy.deepcopy a tensor", "GB4198", "", "", advice.DEEPCOPY),
    ("Unsupported Tensor.backward() call", "GB0123", "", "", advice.BACKWARD),
    ("Failed to mutate tensor data attribute", "GB0056", "", "y.data = y", advice.DATA),
    ("Unsupported method call", "GB0156", "trace method `manual_seed` of class `Generator`", "", advice.GENERATOR),
    ("Unsupported method call", "GB0156", "method `integers` of class `Generator`", "rng.integers(3)", advice.RANDOM),
    ("Unsupported method call", "GB0156", "method `choice` of class `Random`", "self.rng.choice(kinds)", advice.RANDOM),
    ("Unsupported method call", "GB0156", "method `write` of class `TextIO`", "sys.stdout.write(s)", advice.PRINT),
    ("Unsupported method call", "GB0156", "trace method `now` of class `type`", "t = datetime.now()", advice.CLOCK),
    ("Unsupported method call", "GB0156", "method `__call__` of class `ufunc`", "scipy.special.erf(1)", advice.NUMPY),
    ("Unsupported ndarray attribute access", "GB0157", "tracing `ndarray.dtype`", "a = blur(b)", advice.NUMPY),
    (SKIPPED, "GB0007", "to trace the builtin `time.perf_counter.`", "t = perf_counter()", advice.CLOCK),
    (SKIPPED, "GB0007", "", "torch.save(y, p)", advice.FILE),
    (SKIPPED, "GB0007", "", "torch.manual_seed(0)", advice.GENERATOR),
    ("Unsupported Tensor.item() call", "GB0124", "", 'print(f"{y.mean().item():.3f}")', advice.PRINT),
    ("Unsupported python_type() call", "GB4841", "", "for _ in range(n):", advice.RANDOM),
    ("Attempted to wrap RNN, GRU, or LSTM", "GB0014", "", "self.rnn(y)", advice.RECURRENT),
    (
        "Attempted to use `torch.nn.functional.one_hot` with data-dependent output shape",
        "GB0246",
        "",
        "",
        advice.ONE_HOT,
    ),
    ("setattr() on Tensor.requires_grad", "GB0206", "", "p.requires_grad = False", advice.FREEZING),
    ("torch.jit.script/freeze modules unsupported", "GB4695", "", "self.s(y)", advice.SCRIPTED),
    ("Backend compiler exception", "GB0219", "failed with aten._local_scalar_dense", "q[i] = y", advice.REFUSED),
    ("torch.Generator method", "GB7650", "", "", advice.GENERATOR),
    ("Generator reconstruction with mutations", "GB0087", "to fully exhaust the generator", "", advice.YIELD),
    ("Failed to convert args/kwargs to proxy", "GB0093", "", "torch.rand(2, generator=self.g)", advice.GENERATOR),
    (SKIPPED, "GB0007", "the builtin `posix.urandom.`", "seed = os.urandom(4)", advice.RANDOM),
    (SKIPPED, "GB0007", "", "name = uuid.uuid4()", advice.RANDOM),
    ("Unsupported function call", "GB0147", "", "sorted(rows, key=norm)", advice.SORTED),
]
RECOMPILES = [
    ("0/0: tensor 'x' size mismatch at index 0. expected 16, actual 9", advice.BATCH_SHAPE),
    ("0/0: 2 <= inputs.size()[0] <= 32  # y = f(x)  # net.py:5 in forward (user code shown is ...)", advice.BOUNDS),
    ("0/0: L['x'].size()[0] <= 32  # if x.shape[0] > 32:  # net.py:5 in forward", advice.BOUNDS),
    ("0/0: 33 <= x.size()[0]  # if x.shape[0] > 32:  # net.py:5 in forward", advice.BOUNDS),
    ("0/0: x.size()[1] == x.size()[0]  # duck sizing added this equality", advice.EQUAL_SIZES),
    ("0/0: L['x'].size()[2] == L['y'].size()[0]  # duck sizing added this equality", advice.EQUAL_SIZES),
    ("0/0: (x.size()[0] % 8) == 0  # if x.shape[0] % 8 == 0:", advice.BATCH_SHAPE),
    ("0/0: tensor 'x' rank mismatch. expected 2, actual 3", advice.RANK),
    ("0/0: tensor 'x' stride mismatch at index 0. expected 8, actual 1", advice.LAYOUT),
    ("0/0: tensor 'x' dtype mismatch. expected Float, actual Double", advice.DTYPE),
    ("0/0: tensor 'x' requires_grad mismatch. expected requires_grad=0", advice.GRAD),
    ("0/0: GLOBAL_STATE changed: grad_mode ", advice.GRAD),
    ("0/0: GLOBAL_STATE changed: autocast ", advice.STATE),
    ("0/0: tensor 'self._modules['fc']._parameters['bias']' size mismatch at index 0.", advice.OTHER_SIZE),
    ("1/0: tensor 'self._buffers['scale']' size mismatch at index 0. expected 5, actual 7", advice.OTHER_SIZE),
    ("0/0: self.temperature == 1.0  # self.temperature *= 0.99  # net.py:5 in forward", advice.FLOAT),
    ("0/0: self.net.rate == -1e-05  # self.rate *= 0.99  # net.py:5 in forward", advice.FLOAT),
    ("0/1: (0.95*self._modules['net']._modules['drop'].p) == 0.45125  # F.dropout(y, self.p)", advice.FLOAT),
    ("0/0: self._modules['net'].rates['a'] == 0.5  # y * self.rates['a']", advice.FLOAT),
    ("0/0: self._modules['net'].seen == ()  # self.seen += (1,)", advice.GROWING),
    ("0/0: d != 0  # if d == 0:", advice.ARGUMENT),
    ("0/0: not hasattr(self._modules['net'], 'h')  # if not hasattr(self, 'h'):", advice.FLAG),
    ("0/0: self._modules['net'].flip == False  # self.flip = not self.flip", advice.FLAG),
    ("0/0: self._modules['net'].tag == 'a'  # self.tag += 'a'", advice.FLAG),
    ("0/0: self._modules['net'].h is None  # if self.h is None:", advice.FLAG),
    ("0/0: not ___dict_contains((16, 10), self._modules['net'].cache)  # if key not in self.cache:", advice.CACHE),
    ("0/0: self.training == True", advice.TRAINING),
    ("0/0: self.net.calls == 0   # self.calls += 1  # net.py:5 in forward (HINT: ...)", advice.COUNTER),
    ("0/0: self._modules['net'].calls == 0  # self.calls += 1  # net.py:5 in forward", advice.COUNTER),
    ("0/0: not self._modules['net'].seen  # self.seen.append(y)", advice.GROWING),
    ("0/1: len(self.net.seen) == 1  # self.seen.append(y)", advice.GROWING),
    ("0/0: self._modules['net'].seen == set()  # self.seen.add(n)", advice.GROWING),
    ("0/0: k == 3  # return x * k  # net.py:9 in forward", advice.ARGUMENT),
    ("0/0: L['k'] == 3  # return x * k  # net.py:9 in forward", advice.ARGUMENT),
    ("0/0: G['net'].CALLS == 1  # CALLS += 1", advice.ARGUMENT),
    (
        "2/0: ___stack0 == -3.79  # return y * s  # net.py:22 in torch_dynamo_resume_in_forward_at_21",
        advice.AFTER_BREAK,
    ),
    ("2/0: order[0] == 4  # return y[order]  # net.py:61 in torch_dynamo_resume_in_forward_at_60", advice.AFTER_BREAK),
    ("2/0: tensor '___stack0' size mismatch at index 0. expected 76, actual 70", advice.AFTER_BREAK),
    ("0/0: ___check_obj_id(self.f, 94)", advice.OBJECT),
]
SKIPS = [
    ("skipping cudagraphs due to cpu device (arg0_1). Found from : \n File 'net.py', line 3", advice.NO_DEVICE),
    ("CUDA graphs did not take effect: CUDA graphs need a CUDA device", advice.NO_DEVICE),
    ("skipping cudagraphs due to multiple devices: device(type='cuda', index=0), cuda:1", advice.DEVICES),
    ("skipping cudagraphs due to mutated inputs (1 instances). Found from : \n ...", advice.MUTATION),
    ("skipping cudagraphs due to input storage mutation (1 instances)", advice.MUTATION),
    ("skipping cudagraphs due to graph with symbolic shapes inputs and config....", advice.DYNAMIC),
    (
        "skipping cudagraphs due to disabling cudagraphs due to incompatible op aten.nonzero.default",
        advice.INCOMPATIBLE,
    ),
    ("skipping cudagraph due to function 3 exceeding max re-recording limit (=128) on ...", advice.RERECORDED),
    ("skipping cudagraphs due to cpp wrapper enabled", advice.CPP),
    ("skipping cudagraphs due to cpp-wrapper does not support graph partition yet", advice.CPP),
]


@pytest.mark.parametrize(("reason", "number", "explanation", "code", "expected"), BREAKS)
def test_a_graph_break(reason, number, explanation, code, expected):
    assert advice.of_break({"reason": reason, "id": number, "explanation": explanation, "code": code}) is expected


def test_a_break_of_a_row_from_before_numbers_were_kept():
    assert (
        advice.of_break({"file": "a.py", "line": 1, "reason": "generic_jump TensorVariable()"}) is advice.TENSOR_BRANCH
    )


def test_a_break_that_no_rule_knows_gets_torchs_words_and_page():
    told = advice.of_break({"reason": "Something new", "id": "GB9999", "explanation": "It is new.", "code": "f(x)"})
    assert (told.cause, told.why) == ("Something new", "It is new.")
    assert told.remedy.endswith("/gb/gb9999.html")


@pytest.mark.parametrize(("reason", "expected"), RECOMPILES)
def test_a_recompile(reason, expected):
    assert advice.of_recompile(reason) is expected


def test_a_size_that_changes_though_sizes_are_open_is_fixed_by_the_network():
    reason = "0/0: x.size()[0] == 16  # for k in range(x.shape[0]):"
    told = [advice.of_recompile(reason, dynamic) for dynamic in (True, False, None)]
    assert told == [advice.FIXED_SIZE, advice.BATCH_SHAPE, advice.BATCH_SHAPE]


def test_of_a_tensor_that_a_break_brought_back_the_size_is_the_constant():
    told = advice.of_recompile("2/0: tensor '___stack1' size mismatch at index 0. expected 256, actual 247")
    assert "of a tensor: its size" in told.why


@pytest.mark.parametrize(("reason", "expected"), SKIPS)
def test_a_skipped_cuda_graph(reason, expected):
    assert advice.of_skip(reason) is expected


def test_every_cause_has_a_name_of_its_own():
    told = [thing for thing in vars(advice).values() if isinstance(thing, advice.Advice)]
    assert len({one.cause for one in told}) == len(told) > 30
