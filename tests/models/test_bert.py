"""BERT: padding, features, one graph. test_parity compares it with transformers'."""

import pytest
import torch
from torch import Tensor
from torch._dynamo.testing import CompileCounterWithBackend

from trainkit.models.bert import BERT

PAD = 5


@pytest.fixture(autouse=True)
def fresh():
    torch.manual_seed(0)
    torch._dynamo.reset()


def bert(**changes) -> BERT:
    sizes = {"vocab_size": 97, "seq_len": 16, "num_classes": 7, "dim": 64, "depth": 3, "num_heads": 4}
    return BERT(**{**sizes, **changes})


def padded(lengths: tuple[int, ...], width: int) -> dict[str, Tensor]:
    """Random sequences of these lengths, filled up with PAD: [B, width], and their mask."""
    mask = torch.arange(width) < torch.tensor(lengths)[:, None]
    tokens = torch.randint(97, (len(lengths), width)).where(mask, PAD)
    return {"input_ids": tokens, "attention_mask": mask.long()}


def test_padding_does_not_change_the_logits_behind_a_mask():
    batch, net = padded((9, 9), 16), bert().eval()
    logits = net(batch["input_ids"][:, :9])
    torch.testing.assert_close(net(**batch), logits)
    assert (net(batch["input_ids"]) - logits).abs().max() > 1e-4  # without the mask


def test_every_position_is_seen():
    net, tokens = bert(), torch.randint(97, (2, 16))
    logits = net(tokens)
    for position in range(16):
        changed = tokens.clone()
        changed[:, position] = (tokens[:, position] + 1) % 97
        assert (net(changed) != logits).any(1).all()


def test_forward_is_the_head_of_the_features():
    net, batch = bert(), padded((16, 9), 16)
    features = net.features(**batch)
    assert features.shape == (2, 64)
    torch.testing.assert_close(net.head(features), net(**batch), rtol=0, atol=0)


def test_weights_start_as_those_of_bert():
    net = bert(dim=128)
    block = net.blocks[0]
    for layer in (net.token, net.position, net.pooler, block.attention.qkv, block.attention.project, block.shrink):
        assert layer.weight.std().item() == pytest.approx(0.02, rel=0.05)
    assert not any(bias.any() for name, bias in net.named_parameters() if name.endswith("bias"))


def test_dropout_is_in_training_alone():
    net, tokens = bert(dropout=0.5), torch.randint(97, (2, 16))
    assert not torch.equal(net(tokens), net(tokens))
    torch.testing.assert_close(net.eval()(tokens), net(tokens), rtol=0, atol=0)


def test_it_is_one_graph():
    net, counter = bert(dropout=0.1), CompileCounterWithBackend("eager")
    net.compile(backend=counter, fullgraph=True)
    net(**padded((16, 9), 16)).sum().backward()
    assert counter.frame_count == 1


def test_sizes_and_sequences_that_do_not_fit_say_so():
    with pytest.raises(ValueError, match="17 tokens is longer than seq_len=16"):
        bert()(torch.zeros(1, 17, dtype=torch.long))
    with pytest.raises(ValueError, match="num_heads=5 does not divide dim=64"):
        bert(num_heads=5)
