"""GPT-2: causal, one graph, with the published initialization. test_parity compares it with transformers'."""

import pytest
import torch
from torch import nn
from torch._dynamo.testing import CompileCounterWithBackend

from trainkit.models.gpt2 import GPT2


@pytest.fixture(autouse=True)
def fresh():
    torch.manual_seed(0)
    torch._dynamo.reset()


def gpt2(**changes) -> GPT2:
    return GPT2(**{"vocab_size": 97, "seq_len": 16, "dim": 64, "depth": 3, "num_heads": 4, **changes})


def parameters(net: nn.Module) -> int:
    return sum(weight.numel() for weight in net.parameters())


def test_a_padded_vocabulary_has_further_rows_and_the_same_logits_before_them():
    with torch.device("meta"):
        net = GPT2(vocab_size=50257, seq_len=1024, vocab_multiple=64)
    assert net.head.weight.shape == net.token.weight.shape == (50304, 768)
    assert parameters(net) == 124_439_808 + (50304 - 50257) * 768

    exact, padded = gpt2(), gpt2(vocab_multiple=32)
    weights = exact.state_dict()
    rows = torch.cat([weights["token.weight"], torch.ones(128 - 97, 64)])
    padded.load_state_dict(weights | {"token.weight": rows, "head.weight": rows})
    tokens = torch.randint(97, (2, 16))
    assert padded(tokens).shape == (2, 16, 128)
    torch.testing.assert_close(padded(tokens)[..., :97], exact(tokens))
    assert gpt2(vocab_size=96, vocab_multiple=32).token.num_embeddings == 96


def test_the_head_is_the_token_embedding():
    net = gpt2()
    assert net.head.weight is net.token.weight
    assert "head.weight" not in dict(net.named_parameters())


def test_without_bias_there_is_none():
    net = gpt2(bias=False)
    assert not [name for name, _ in net.named_parameters() if "bias" in name]
    biases = 64 + 3 * (2 * 64 + 3 * 64 + 64 + 4 * 64 + 64)  # last norm; of a block: norms, qkv, project, widen, shrink
    assert parameters(net) == parameters(gpt2()) - biases
    assert net(torch.zeros(1, 5, dtype=torch.long)).shape == (1, 5, 97)


def test_a_position_does_not_see_later_tokens():
    net = gpt2()
    tokens = torch.randint(97, (2, 16))
    changed = tokens.clone()
    changed[:, 8] = (tokens[:, 8] + 1) % 97
    logits, others = net(tokens), net(changed)
    torch.testing.assert_close(others[:, :8], logits[:, :8], rtol=0, atol=0)
    assert all((others[:, t] != logits[:, t]).any() for t in range(8, 16))


def test_forward_is_the_head_of_the_features():
    net, tokens = gpt2(), torch.randint(97, (2, 16))
    features = net.features(tokens)
    assert features.shape == (2, 16, 64)
    torch.testing.assert_close(net.head(features), net(tokens), rtol=0, atol=0)
    assert net.logits_are_head_of_features
    assert net.head.bias is None


def test_weights_start_as_those_of_gpt2():
    net = gpt2(dim=128, depth=8)
    block = net.blocks[0]
    for small in (block.attention.project, block.shrink):
        assert small.weight.std().item() == pytest.approx(0.02 / 16**0.5, rel=0.05)
    for usual in (net.token, net.position, block.attention.qkv, block.widen):
        assert usual.weight.std().item() == pytest.approx(0.02, rel=0.05)
    assert not any(bias.any() for name, bias in net.named_parameters() if name.endswith("bias"))


def test_dropout_is_in_training_alone():
    net, tokens = gpt2(dropout=0.5), torch.randint(97, (2, 16))
    assert not torch.equal(net(tokens), net(tokens))
    torch.testing.assert_close(net.eval()(tokens), net(tokens), rtol=0, atol=0)


@pytest.mark.parametrize("residual_in_fp32", [True, False])
def test_under_autocast_the_residual_stream_is_of_the_type_asked_for(residual_in_fp32):
    net, tokens = gpt2(residual_in_fp32=residual_in_fp32), torch.randint(97, (2, 16))
    seen = []
    for block in net.blocks:
        block.register_forward_hook(lambda module, args, out: seen.append((args[0].dtype, out.dtype)))
    exact = net(tokens)
    assert set(seen) == {(torch.float32, torch.float32)}
    seen.clear()
    with torch.autocast("cpu", torch.bfloat16):
        coarse = net(tokens)
    stream = torch.float32 if residual_in_fp32 else torch.bfloat16
    assert set(seen) == {(stream, stream)}
    assert (coarse - exact).norm() < 0.03 * exact.norm()


@pytest.mark.parametrize("bias", [True, False])
def test_it_is_one_graph(bias):
    net, counter = gpt2(bias=bias, dropout=0.1), CompileCounterWithBackend("eager")
    net.compile(backend=counter, fullgraph=True)
    net(torch.randint(97, (2, 16))).sum().backward()
    assert counter.frame_count == 1


def test_sizes_and_sequences_that_do_not_fit_say_so():
    with pytest.raises(ValueError, match="17 tokens is longer than seq_len=16"):
        gpt2()(torch.zeros(1, 17, dtype=torch.long))
    with pytest.raises(ValueError, match="num_heads=5 does not divide dim=64"):
        gpt2(num_heads=5)
    with pytest.raises(ValueError, match="vocab_multiple=0 is no number of rows"):
        gpt2(vocab_multiple=0)
