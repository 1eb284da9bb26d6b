"""BERT: equal to the one of transformers with and without padding, of the published size, one graph."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch._dynamo.testing import CompileCounterWithBackend
from transformers import BertConfig, BertForSequenceClassification

from trainkit.models.bert import BERT

PAD = 5
OUTSIDE = {  # ours: theirs
    "norm": "bert.embeddings.LayerNorm",
    "pooler": "bert.pooler.dense",
    "head": "classifier",
}
EMBEDDINGS = {"token": "word", "position": "position", "segment": "token_type"}
WITHIN = {  # a block
    "attention.project": "attention.output.dense",
    "norm1": "attention.output.LayerNorm",
    "widen": "intermediate.dense",
    "shrink": "output.dense",
    "norm2": "output.LayerNorm",
}


@pytest.fixture(autouse=True)
def fresh():
    torch.manual_seed(0)
    torch._dynamo.reset()


def bert(**changes) -> BERT:
    sizes = {"vocab_size": 97, "seq_len": 16, "num_classes": 7, "dim": 64, "depth": 3, "num_heads": 4}
    return BERT(**{**sizes, **changes})


def padded(lengths: tuple[int, ...], width: int) -> Tensor:
    """Random sequences of these lengths, without PAD in them, filled up with it: [B, width]."""
    tokens = torch.randint(PAD + 1, 97, (len(lengths), width))
    return tokens.where(torch.arange(width) < torch.tensor(lengths)[:, None], PAD)


def as_theirs(ours: dict[str, Tensor], depth: int) -> dict[str, Tensor]:
    """Weights (or gradients) of ours under the names of transformers, which has q, k and v apart."""
    ours = dict(ours)
    theirs = {f"bert.embeddings.{b}_embeddings.weight": ours.pop(f"{a}.weight") for a, b in EMBEDDINGS.items()}
    for kind in ("weight", "bias"):
        theirs |= {f"{b}.{kind}": ours.pop(f"{a}.{kind}") for a, b in OUTSIDE.items()}
        for n in range(depth):
            layer = f"bert.encoder.layer.{n}"
            theirs |= {f"{layer}.{b}.{kind}": ours.pop(f"blocks.{n}.{a}.{kind}") for a, b in WITHIN.items()}
            qkv = ours.pop(f"blocks.{n}.attention.qkv.{kind}").chunk(3)
            names = ("query", "key", "value")
            theirs |= {f"{layer}.attention.self.{b}.{kind}": part for b, part in zip(names, qkv, strict=True)}
    assert not ours
    return theirs


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize(
    ("pad_token", "lengths"), [(None, (16, 16, 16, 16)), (PAD, (16, 9, 1, 12))], ids=["all-seen", "padded"]
)
def test_logits_and_gradients_are_those_of_transformers(pad_token, lengths, attention):
    config = BertConfig(
        vocab_size=97,
        max_position_embeddings=16,
        hidden_size=64,
        intermediate_size=256,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_labels=7,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        pad_token_id=pad_token,
        attn_implementation=attention,
    )
    theirs, ours = BertForSequenceClassification(config).double().train(), bert(pad_token=pad_token).double()
    for weight in ours.parameters():
        nn.init.normal_(weight, std=0.3)  # no bias 0, no scale 1
    copied = as_theirs({name: weight.detach() for name, weight in ours.named_parameters()}, depth=3)
    assert copied.keys() == dict(theirs.named_parameters()).keys()
    theirs.load_state_dict(copied)

    tokens, targets = padded(lengths, 16), torch.randint(7, (4,))
    mask = None if pad_token is None else (tokens != pad_token).long()
    logits, expected = ours(tokens), theirs(tokens, attention_mask=mask).logits
    torch.testing.assert_close(logits, expected, rtol=1e-10, atol=1e-10)
    for computed in (logits, expected):
        F.cross_entropy(computed, targets).backward()
    gradients = as_theirs({name: weight.grad for name, weight in ours.named_parameters()}, depth=3)
    expected_gradients = {name: weight.grad for name, weight in theirs.named_parameters()}
    torch.testing.assert_close(gradients, expected_gradients, rtol=1e-10, atol=1e-10)


def test_it_has_the_parameters_of_the_published_one():
    with torch.device("meta"):
        ours = BERT(vocab_size=30522, seq_len=512, num_classes=2)
        theirs = BertForSequenceClassification(BertConfig(num_labels=2))
    assert [sum(weight.numel() for weight in net.parameters()) for net in (ours, theirs)] == [109_483_778] * 2


def test_padding_does_not_change_the_logits_where_its_token_is_given():
    short, long = torch.randint(PAD + 1, 97, (2, 9)), padded((9, 9), 16)
    long[:, :9] = short
    net = bert(pad_token=PAD).eval()
    torch.testing.assert_close(net(long), net(short))
    blind = bert(pad_token=None).eval()
    blind.load_state_dict(net.state_dict())
    torch.testing.assert_close(blind(short), net(short))
    assert (blind(long) - blind(short)).abs().max() > 1e-4


def test_every_position_is_seen():
    net, tokens = bert(), torch.randint(97, (2, 16))
    logits = net(tokens)
    for position in range(16):
        changed = tokens.clone()
        changed[:, position] = (tokens[:, position] + 1) % 97
        assert (net(changed) != logits).any(1).all()


@pytest.mark.parametrize("pad_token", [None, PAD])
def test_forward_is_the_head_of_the_features(pad_token):
    net, tokens = bert(pad_token=pad_token), padded((16, 9), 16)
    features = net.features(tokens)
    assert features.shape == (2, 64)
    torch.testing.assert_close(net.head(features), net(tokens), rtol=0, atol=0)


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


@pytest.mark.parametrize("pad_token", [None, PAD])
def test_it_is_one_graph(pad_token):
    net, counter = bert(pad_token=pad_token, dropout=0.1), CompileCounterWithBackend("eager")
    net.compile(backend=counter, fullgraph=True)
    net(padded((16, 9), 16)).sum().backward()
    assert counter.frame_count == 1


def test_sizes_and_sequences_that_do_not_fit_say_so():
    with pytest.raises(ValueError, match="17 tokens is longer than seq_len=16"):
        bert()(torch.zeros(1, 17, dtype=torch.long))
    with pytest.raises(ValueError, match="num_heads=5 does not divide dim=64"):
        bert(num_heads=5)
    with pytest.raises(ValueError, match="pad_token=97 is not one of the vocab_size=97 tokens"):
        bert(pad_token=97)
