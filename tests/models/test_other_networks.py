"""Networks of other libraries, by the yaml that names them."""

import importlib.util

import pytest
import torch

from trainkit.config.errors import ConfigError
from trainkit.distributed.topology import select_devices
from trainkit.training.model import build_data, build_model
from trainkit.training.run import run

QUICK = ("data=synthetic", "data.num_batches=4", "data.num_val_batches=2", "data.batch_size=4", "trainer.max_epochs=1")
DISTILBERT = ("model=transformers", "+model.config.n_layers=1", "+model.config.dim=16", "+model.config.n_heads=2")
DISTILBERT = (*DISTILBERT, "+model.config.hidden_dim=32", "data.seq_len=8", "data.vocab_size=50", "data.num_classes=3")


def test_a_network_of_transformers_trains_as_one_graph(compose):
    row = run(compose(*DISTILBERT, *QUICK, "compile.backend=aot_eager", "compile.fullgraph=true", "check=true"))
    assert (row.status, row.model, row.num_graph_breaks) == ("ok", "transformers.distilbert", 0), row.error
    assert row.check_passed is not False, row.check_reason
    assert row.num_val_targets == 2 * 4


def test_it_is_of_the_type_and_sizes_asked_for(compose):
    words = (*DISTILBERT, *QUICK, "model.config.model_type=bert", "~model.config.dim", "+model.config.hidden_size=16")
    words = (*words, "+model.config.num_attention_heads=2", "+model.config.num_hidden_layers=1")
    config = compose(*words)
    net = build_model(config, build_data(config), select_devices(config))
    assert type(net).__name__ == "BertForSequenceClassification"
    assert (net.config.hidden_size, net.config.vocab_size, net.config.num_labels) == (16, 50, 3)


@pytest.mark.skipif(
    importlib.util.find_spec("timm") is None,
    reason="needs timm, which needs torchvision, which PyPI has for CUDA builds of torch alone",
)
@pytest.mark.parametrize("name", ["resnet18", "vit_tiny_patch16_224"])
def test_a_network_of_timm_trains(name, compose):
    size = "data.image_size=224" if "224" in name else "data.image_size=32"
    words = ("model=timm", f"model.model_name={name}", size, "data.channels=1", "data.num_classes=3")
    row = run(compose(*words, *QUICK, "compile.backend=aot_eager", "compile.fullgraph=true"))
    assert (row.status, row.model, row.num_graph_breaks) == ("ok", f"timm.{name}", 0), row.error


def test_a_library_that_is_not_there_is_named(compose):
    if importlib.util.find_spec("timm") is not None:
        pytest.skip("needs an environment without timm")
    with pytest.raises(ConfigError, match=r"model._target_ = timm.create_model: .*timm"):
        run(compose("model=timm", *QUICK))


def test_without_padding_it_computes_what_transformers_does(compose):
    config = compose(*DISTILBERT, *QUICK)
    net = build_model(config, build_data(config), select_devices(config)).eval()
    tokens = torch.randint(50, (2, 8))
    torch.testing.assert_close(net(tokens).logits, net(input_ids=tokens, return_dict=False)[0])


BERT_SIZES = ("hidden_size=16", "num_attention_heads=2", "num_hidden_layers=1", "intermediate_size=32")
SIZES = {
    "roberta": BERT_SIZES,
    "gpt2": ("n_embd=16", "n_layer=1", "n_head=2"),
    "t5": ("d_model=16", "d_kv=8", "num_layers=1", "num_heads=2", "d_ff=32"),
}


def of_type(model: str, model_type: str) -> list[str]:
    settings = [f"+model.config.{size}" for size in SIZES[model_type]]
    return [f"model={model}", f"model.config.model_type={model_type}", *settings, "data.seq_len=8"]


@pytest.mark.parametrize(
    ("model", "model_type"), [("transformers", "roberta"), ("transformers", "gpt2"), ("transformers_lm", "gpt2")]
)
def test_networks_of_transformers_train_on_sequences_of_full_length(model, model_type, compose):
    words = (*of_type(model, model_type), "data.vocab_size=50", *QUICK)
    row = run(compose(*words, "compile.backend=aot_eager", "compile.fullgraph=true"))
    assert (row.status, row.model, row.num_graph_breaks) == ("ok", f"{model}.{model_type}", 0), row.error


def test_a_causal_language_model_predicts_the_next_token_of_a_text(compose, text_file, tmp_path):
    data = ("data=text", f"data.path={text_file}", f"data.cache_dir={tmp_path}", "data.vocab_size=300")
    row = run(compose(*of_type("transformers_lm", "gpt2"), *data, "compile.mode=eager", "trainer.max_steps=20"))
    assert row.status == "ok", row.error
    assert row.num_val_targets % 8 == 0
    assert row.train_loss < 5.7  # log(300), of a network that has learnt nothing


def test_what_a_network_of_transformers_lacks_is_one_line_with_the_place(compose):
    config = compose(*of_type("transformers", "t5"), "data.vocab_size=50", *QUICK)
    expected = (
        r"^model = transformers\.t5: does not fit data = synthetic: .* \(at transformers/.*\.py:\d+\), tried on .*$"
    )
    with pytest.raises(ConfigError, match=expected):
        build_model(config, build_data(config), select_devices(config))
