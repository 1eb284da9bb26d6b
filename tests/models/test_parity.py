"""The four large networks: the same logits, gradients and statistics as those of transformers, and the same sizes."""

from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    GPT2Config,
    GPT2LMHeadModel,
    ResNetConfig,
    ResNetForImageClassification,
    ViTConfig,
    ViTForImageClassification,
)

from trainkit.inputs import Inputs, call
from trainkit.models.bert import BERT
from trainkit.models.gpt2 import GPT2
from trainkit.models.resnet50 import ResNet50
from trainkit.models.vit_b16 import ViT

Tensors = dict[str, Tensor]  # parameters, gradients or buffers by name
DEPTH = 3
RESNET_DEPTHS = (3, 4, 6, 3)
PAD = 5
PATCH = 8


@dataclass
class Pair:
    """Our network and that of transformers, with a batch for both. `rename` gives tensors of ours their names."""

    ours: nn.Module
    theirs: nn.Module
    rename: Callable[[Tensors], Tensors]
    inputs: Inputs
    targets: Tensor


@pytest.fixture(autouse=True)
def fixed_seed():
    torch.manual_seed(0)


def rename_gpt2(ours: Tensors) -> Tensors:
    """Transformers' Conv1D has the transposed matrix."""
    block = {
        "norm1": "ln_1",
        "attention.qkv": "attn.c_attn",
        "attention.project": "attn.c_proj",
        "norm2": "ln_2",
        "widen": "mlp.c_fc",
        "shrink": "mlp.c_proj",
    }
    names = {"token.weight": "transformer.wte.weight", "position.weight": "transformer.wpe.weight"}
    for kind in ("weight", "bias"):
        names[f"norm.{kind}"] = f"transformer.ln_f.{kind}"
        for n in range(DEPTH):
            for layer, renamed in block.items():
                names[f"blocks.{n}.{layer}.{kind}"] = f"transformer.h.{n}.{renamed}.{kind}"
    if "head.weight" in ours:  # in a state dict, not among the parameters: it is the token embedding
        names["head.weight"] = "lm_head.weight"
    assert names.keys() == ours.keys()
    theirs = {}
    for name, tensor in ours.items():
        transposed = name.endswith(("qkv.weight", "project.weight", "widen.weight", "shrink.weight"))
        theirs[names[name]] = tensor.T if transposed else tensor
    return theirs


def rename_bert(ours: Tensors) -> Tensors:
    """Transformers has q, k and v apart."""
    outside = {"norm": "bert.embeddings.LayerNorm", "pooler": "bert.pooler.dense", "head": "classifier"}
    block = {
        "attention.project": "attention.output.dense",
        "norm1": "attention.output.LayerNorm",
        "widen": "intermediate.dense",
        "shrink": "output.dense",
        "norm2": "output.LayerNorm",
    }
    ours, theirs = dict(ours), {}
    for name, renamed in {"token": "word", "position": "position", "segment": "token_type"}.items():
        theirs[f"bert.embeddings.{renamed}_embeddings.weight"] = ours.pop(f"{name}.weight")
    for kind in ("weight", "bias"):
        for name, renamed in outside.items():
            theirs[f"{renamed}.{kind}"] = ours.pop(f"{name}.{kind}")
        for n in range(DEPTH):
            for name, renamed in block.items():
                theirs[f"bert.encoder.layer.{n}.{renamed}.{kind}"] = ours.pop(f"blocks.{n}.{name}.{kind}")
            qkv = ours.pop(f"blocks.{n}.attention.qkv.{kind}").chunk(3)
            for renamed, tensor in zip(("query", "key", "value"), qkv, strict=True):
                theirs[f"bert.encoder.layer.{n}.attention.self.{renamed}.{kind}"] = tensor
    assert not ours
    return theirs


def rename_vit(ours: Tensors) -> Tensors:
    """Transformers has q, k and v apart, and a convolution of the patches."""
    block = {
        "norm1": "layernorm_before",
        "attention.project": "attention.o_proj",
        "norm2": "layernorm_after",
        "widen": "mlp.fc1",
        "shrink": "mlp.fc2",
    }
    ours = dict(ours)
    patch = "vit.embeddings.patch_embeddings.projection"
    theirs = {
        "vit.embeddings.cls_token": ours.pop("class_token")[None, None],
        "vit.embeddings.position_embeddings": ours.pop("position")[None],
        f"{patch}.weight": ours.pop("patch.weight").unflatten(1, (-1, PATCH, PATCH)),
        f"{patch}.bias": ours.pop("patch.bias"),
    }
    for kind in ("weight", "bias"):
        for name, renamed in {"norm": "vit.layernorm", "head": "classifier"}.items():
            theirs[f"{renamed}.{kind}"] = ours.pop(f"{name}.{kind}")
        for n in range(DEPTH):
            for name, renamed in block.items():
                theirs[f"vit.layers.{n}.{renamed}.{kind}"] = ours.pop(f"blocks.{n}.{name}.{kind}")
            qkv = ours.pop(f"blocks.{n}.attention.qkv.{kind}").chunk(3)
            for letter, tensor in zip("qkv", qkv, strict=True):
                theirs[f"vit.layers.{n}.attention.{letter}_proj.{kind}"] = tensor
    assert not ours
    return theirs


def rename_resnet50(ours: Tensors) -> Tensors:
    modules = {"fc": "classifier.1", "conv": "resnet.embedder.embedder.convolution"}
    modules["bn"] = "resnet.embedder.embedder.normalization"
    for stage, depth in enumerate(RESNET_DEPTHS):
        layers = f"resnet.encoder.stages.{stage}.layers"
        modules[f"stage{stage + 1}.0.shortcut.0"] = f"{layers}.0.shortcut.convolution"
        modules[f"stage{stage + 1}.0.shortcut.1"] = f"{layers}.0.shortcut.normalization"
        for n in range(depth):
            for k in range(3):
                modules[f"stage{stage + 1}.{n}.conv{k + 1}"] = f"{layers}.{n}.layer.{k}.convolution"
                modules[f"stage{stage + 1}.{n}.bn{k + 1}"] = f"{layers}.{n}.layer.{k}.normalization"
    theirs, renamed_modules = {}, set()
    for name, tensor in ours.items():
        module, _, kind = name.rpartition(".")
        theirs[f"{modules[module]}.{kind}"] = tensor
        renamed_modules.add(module)
    assert renamed_modules == modules.keys()
    return theirs


def randomize(net: nn.Module) -> None:
    """No bias stays 0, no scale 1."""
    for weight in net.parameters():
        nn.init.normal_(weight, std=0.3)


def gpt2(length: int) -> Pair:
    config = GPT2Config(vocab_size=97, n_positions=16, n_embd=64, n_layer=DEPTH, n_head=4)
    config.resid_pdrop = config.embd_pdrop = config.attn_pdrop = 0.0
    ours = GPT2(vocab_size=97, seq_len=16, dim=64, depth=DEPTH, num_heads=4)
    randomize(ours)
    tokens, targets = torch.randint(97, (2, 4, length))
    return Pair(ours, GPT2LMHeadModel(config), rename_gpt2, tokens, targets)


def bert(attention: str, padded: bool) -> Pair:
    config = BertConfig(
        vocab_size=97,
        max_position_embeddings=16,
        hidden_size=64,
        intermediate_size=256,
        num_hidden_layers=DEPTH,
        num_attention_heads=4,
        num_labels=7,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        pad_token_id=PAD,
        attn_implementation=attention,
    )
    ours = BERT(vocab_size=97, seq_len=16, num_classes=7, dim=64, depth=DEPTH, num_heads=4)
    randomize(ours)
    batch = {"input_ids": torch.randint(PAD + 1, 97, (4, 16))}
    if padded:
        mask = (torch.arange(16) < torch.tensor([16, 9, 1, 12])[:, None]).long()
        batch = {"input_ids": batch["input_ids"].where(mask == 1, PAD), "attention_mask": mask}
    return Pair(ours, BertForSequenceClassification(config), rename_bert, batch, torch.randint(7, (4,)))


def vit(norm_eps: float) -> Pair:
    config = ViTConfig(
        num_channels=3,
        image_size=32,
        patch_size=PATCH,
        num_labels=7,
        hidden_size=64,
        intermediate_size=256,
        num_hidden_layers=DEPTH,
        num_attention_heads=4,
        layer_norm_eps=norm_eps,
        attn_implementation="sdpa",  # eager has a softmax in float32
    )
    sizes = {"patch_size": PATCH, "dim": 64, "depth": DEPTH, "num_heads": 4}
    ours = ViT(channels=3, image_size=32, num_classes=7, norm_eps=norm_eps, **sizes)
    randomize(ours)
    images = torch.randn(4, 3, 32, 32, dtype=torch.double)
    return Pair(ours, ViTForImageClassification(config), rename_vit, images, torch.randint(7, (4,)))


def resnet50() -> Pair:
    config = ResNetConfig(embedding_size=8, hidden_sizes=[32, 64, 128, 256], depths=list(RESNET_DEPTHS), num_labels=7)
    assert (config.layer_type, config.downsample_in_bottleneck) == ("bottleneck", False)  # v1.5
    ours = ResNet50(channels=3, num_classes=7, width=8)
    for module in ours.modules():
        if isinstance(module, nn.BatchNorm2d):
            for positive in (module.weight, module.running_var):
                nn.init.uniform_(positive, 0.5, 1.5)
            for any_sign in (module.bias, module.running_mean):
                nn.init.normal_(any_sign, std=0.3)
    images = torch.randn(4, 3, 47, 66, dtype=torch.double)
    return Pair(ours, ResNetForImageClassification(config), rename_resnet50, images, torch.randint(7, (4,)))


CASES = {
    "gpt2": (gpt2, [16], True),
    "gpt2-short": (gpt2, [11], True),
    "bert-eager": (bert, ["eager", False], True),
    "bert-eager-padded": (bert, ["eager", True], True),
    "bert-sdpa": (bert, ["sdpa", False], True),
    "bert-sdpa-padded": (bert, ["sdpa", True], True),
    "vit-train": (vit, [1e-6], True),
    "vit-eval": (vit, [1e-6], False),
    "vit-train-small-eps": (vit, [1e-12], True),
    "vit-eval-small-eps": (vit, [1e-12], False),
    "resnet50-train": (resnet50, [], True),
    "resnet50-eval": (resnet50, [], False),
}


@pytest.mark.parametrize(("make_pair", "arguments", "training"), CASES.values(), ids=CASES)
def test_logits_gradients_and_statistics_are_those_of_transformers(make_pair, arguments, training):
    pair = make_pair(*arguments)
    ours, theirs = pair.ours.double().train(training), pair.theirs.double().train(training)
    copied = pair.rename(ours.state_dict())
    assert copied.keys() == theirs.state_dict().keys()
    theirs.load_state_dict(copied)

    logits, expected = call(ours, pair.inputs), call(theirs, pair.inputs).logits
    torch.testing.assert_close(logits, expected, rtol=1e-10, atol=1e-10)
    for computed in (logits, expected):
        F.cross_entropy(computed.flatten(0, -2), pair.targets.flatten()).backward()
    gradients = pair.rename({name: weight.grad for name, weight in ours.named_parameters()})
    expected_gradients = {name: weight.grad for name, weight in theirs.named_parameters()}
    assert all(gradient is not None for gradient in gradients.values())
    torch.testing.assert_close(gradients, expected_gradients, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(pair.rename(ours.state_dict()), dict(theirs.state_dict()), rtol=1e-10, atol=1e-10)


def num_parameters(net: nn.Module) -> int:
    return sum(weight.numel() for weight in net.parameters())


PUBLISHED = {
    "bert": (
        lambda: BERT(vocab_size=30522, seq_len=512, num_classes=2),
        lambda: BertForSequenceClassification(BertConfig(num_labels=2)),
        109_483_778,
    ),
    "vit_b16": (
        lambda: ViT(channels=3, image_size=224, num_classes=1000),
        lambda: ViTForImageClassification(ViTConfig(num_labels=1000)),
        86_567_656,
    ),
    "resnet50": (
        lambda: ResNet50(channels=3, num_classes=1000),
        lambda: ResNetForImageClassification(ResNetConfig(num_labels=1000)),
        25_557_032,
    ),
}


@pytest.mark.parametrize(("make_ours", "make_theirs", "published"), PUBLISHED.values(), ids=PUBLISHED)
def test_it_has_the_parameters_of_the_published_one(make_ours, make_theirs, published):
    with torch.device("meta"):
        ours, theirs = make_ours(), make_theirs()
    assert num_parameters(ours) == num_parameters(theirs) == published


PUBLISHED_GPT2 = {
    "small": (768, 12, 12, 124_439_808),
    "medium": (1024, 24, 16, 354_823_168),
    "large": (1280, 36, 20, 774_030_080),
    "xl": (1600, 48, 25, 1_557_611_200),
}


@pytest.mark.parametrize(("dim", "depth", "num_heads", "published"), PUBLISHED_GPT2.values(), ids=PUBLISHED_GPT2)
def test_gpt2_has_the_parameters_of_the_published_sizes(dim, depth, num_heads, published):
    with torch.device("meta"):
        net = GPT2(vocab_size=50257, seq_len=1024, dim=dim, depth=depth, num_heads=num_heads)
    assert num_parameters(net) == published
