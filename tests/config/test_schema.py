"""What may be asked: what cannot be run is one line with the setting, its value and the way out."""

import pytest
import torch
from hydra import compose as compose_node
from hydra import initialize_config_dir
from hydra.core.hydra_config import HydraConfig

from tests.conftest import CONF
from trainkit.config.errors import ConfigError
from trainkit.config.schema import Mode, RunConfig
from trainkit.distributed.topology import select_devices
from trainkit.training.model import build_data, build_model
from trainkit.training.optimizer import build_optimizer


@pytest.mark.parametrize(
    "override", ["+compile.options.triton.cudagraphs=false", "+compile.options={triton.cudagraphs: false}"]
)
def test_options_of_torch_compile_are_typed_by_their_dotted_names_or_as_a_dict(override, compose):
    config = compose(
        override, "+compile.options.max_fusion_size=8", "compile.parts=[{match: a}]", "compile.scope=parts"
    )
    options = {"max_fusion_size": 8, "triton.cudagraphs": False}
    assert config.compile.options == config.compile.parts[0].options == options
    assert list(config.compile.options) == sorted(options)


@pytest.mark.parametrize("mode", list(Mode))
def test_every_mode_is_typed_as_torch_spells_it(mode, compose):
    assert compose(f"compile.mode={mode}").compile.mode == mode


@pytest.mark.parametrize(
    ("overrides", "name"),
    [
        ((), "simple_cnn-default"),
        (("amp=bf16", "compile.mode=eager", "optimizer.lr=0.1"), "simple_cnn-eager-bf16-mixed"),
        (("compile.dynamic=true", "ddp.strategy=ddp"), "simple_cnn-default-dynamic=true-strategy=ddp"),
        # A sweep over them types the defaults too.
        (("amp=off", "compile.dynamic=null"), "simple_cnn-default-32-true-dynamic=null"),
        (("logger.wandb.name=mine",), "mine"),
    ],
)
def test_a_run_in_wandb_is_named_by_its_precision_shapes_and_strategy_where_they_are_not_the_defaults(
    overrides, name, compose
):
    assert compose("logger=wandb", *overrides).logger["wandb"]["name"] == name


TOKENS = ("data=synthetic", "data.seq_len=8")


def built(config: RunConfig) -> None:
    build_optimizer(config)
    build_model(config, build_data(config), select_devices(config))


@pytest.mark.parametrize(
    ("overrides", "complaint"),
    [
        (["data.batch_size=-1"], "data.batch_size = -1: expected a whole number of at least 1"),
        (["data.batch_size=1.5"], "data.batch_size = 1.5: expected a whole number"),
        (["data.num_workers=-1"], "data.num_workers = -1: "),
        (["optimizer.lr=0"], "optimizer.lr = 0: expected a number above 0"),
        (["trainer.memory_limit_gib=0"], "trainer.memory_limit_gib = 0.0: expected a number above 0"),
        (["trainer.max_epochs=0"], "trainer.max_epochs = 0: "),
        (["trainer.max_steps=0"], "trainer.max_steps = 0: "),
        (["trainer.limit_val_batches=1.5"], "trainer.limit_val_batches = 1.5: "),
        (["trainer.limit_train_batches=0"], "trainer.limit_train_batches = 0: "),
        (["model.num_classes=5"], "model.num_classes = 5: data.num_classes = 10 (data = digits); use 10, or data.num_"),
        (["model.channels=3"], "model.channels = 3: data.channels = 1 (data = digits); "),
        (["model=mini_transformer"], "model = mini_transformer: takes tokens, but data = digits gives images; "),
        (
            ["model=mini_transformer", "data=synthetic", "model.seq_len=8"],
            "model.seq_len = 8: data.seq_len = 128 (data = synthetic); ",
        ),
        (["model=bert", "data=sst2", "+model.pad_token=5"], "model.pad_token = 5: data.pad_token = 0 (data = sst2); "),
        (["compile.backend=eager", "compile.mode=reduce-overhead"], "compile.mode = reduce-overhead: "),
        (
            ["compile.mode=max-autotune", "+compile.options.max_fusion_size=8"],
            "compile.mode = max-autotune: torch.compile takes a mode or compile.options (max_fusion_size); use mode ",
        ),
        (
            ["compile.backend=eager", "+compile.options.triton.cudagraphs=true"],
            "compile.backend = eager: compile.options (triton.cudagraphs) are inductor's; ",
        ),
        (["amp=fp16", "trainer.accelerator=cpu"], "amp.precision = 16-mixed: fp16 needs a GPU"),
        (["ddp.optimize_ddp=maybe"], "ddp.optimize_ddp = maybe: expected one of true, false, "),
        (["ddp.strategy=compiled", "compile.mode=eager"], "ddp.strategy = compiled: averages gradients within the "),
        (["ddp.strategy=compiled", "compile.scope=blocks"], "ddp.strategy = compiled: needs the network in one graph"),
        (
            ["ddp.strategy=compiled", "ddp.static_graph=true"],
            "ddp.static_graph = true: has no effect with ddp.strategy",
        ),
        (["ddp.shard_optimizer=true"], "ddp.shard_optimizer = true: is for ddp.strategy = compiled, not auto; leave "),
        (
            ["ddp.shard_optimizer=true", "ddp.strategy=compiled", "trainer.activation_checkpointing=true"],
            "ddp.shard_optimizer = true: what is computed again would find other parameters; use ",
        ),
        (
            ["ddp.shard_optimizer=true", "ddp.strategy=compiled", "amp=fp16"],
            "ddp.shard_optimizer = true: a rank finds overflow of fp16 in its own share alone; use amp=bf16",
        ),
        (["ddp.strategy=fsdp2"], "ddp.strategy = fsdp2: gathers parameters between the blocks, where compile.scope ="),
        (
            ["ddp.strategy=fsdp2", "compile.scope=blocks", "compile.mode=reduce-overhead"],
            "ddp.strategy = fsdp2: gathers ",
        ),
        (["ddp.strategy=fsdp2", "compile.mode=eager", "amp=fp16"], "ddp.strategy = fsdp2: Lightning scales no sharded"),
        (["ddp.strategy=fsdp2", "compile.mode=eager", "ddp.bucket_cap_mb=9"], "ddp.bucket_cap_mb = 9: has no effect"),
        (["seed=-1"], "seed = -1: "),
        (["compile.fullgraph=5"], "compile.fullgraph = 5: expected true or false"),
        (["optimizer.fused=maybe"], "optimizer.fused = maybe: expected true, false or null"),
        (["forward.fallback=${seed}"], "forward.fallback = 0: expected a list, [VALUE, ...]"),
        (["compile.options=${seed}"], "compile.options = 0: expected a mapping, {NAME: VALUE}"),
        (["optimizer.foreach=1.5"], "optimizer.foreach = 1.5: expected true, false or null"),
        (["optimizer.fused=true", "optimizer.foreach=true"], "optimizer.fused = True: excludes optimizer.foreach = "),
    ],
)
def test_what_cannot_be_run_is_one_line_with_setting_value_and_way_out(overrides, complaint, compose):
    with pytest.raises(ConfigError) as caught:
        compose(*overrides)
    assert len(caught.value.complaints) == 1
    assert caught.value.complaints[0].startswith(complaint)


@pytest.mark.parametrize(
    ("overrides", "complaints"),
    [
        (
            ["model=op_chain", "model.num_ops=2.5"],
            ["model.num_ops = 2.5: expected a whole number; try model.num_ops=32"],
        ),
        (
            ["+compile.options.max_fusion_siz=8", "+compile.options.triton.cudagraphs=8", "+compile.options.fo=1"],
            [
                f"compile.options.fo = 1: no option of inductor in torch {torch.__version__}; "
                "torch._inductor.list_options() has the names",
                f"compile.options.max_fusion_siz = 8: no option of inductor in torch {torch.__version__}; "
                "did you mean max_fusion_size?",
                "compile.options.triton.cudagraphs = 8: expected bool",
            ],
        ),
        (["model.width=true"], ["model.width = True: expected a whole number; try model.width=32"]),
        (
            ["model=mini_transformer", *TOKENS, "model.depth=null"],
            ["model.depth = null: expected a whole number; try "],
        ),
        (["model=mini_transformer", *TOKENS, "model.dropout=a"], ["model.dropout = a: expected a number; try model."]),
        (["model=convnet_mix", "model.random_head=7"], ["model.random_head = 7: expected true or false; try model."]),
        (
            ["data=synthetic", "data.num_batches=2.5", "data.num_distinct=a"],
            ["data.num_batches = 2.5: expected a whole number; try data.num_batches=50", "data.num_distinct = a: "],
        ),
        (["data=synthetic", "data.image_size=8.5"], ["data.image_size = 8.5: expected a whole number; try "]),
        (["data.seed=a"], ["data.seed = a: expected a whole number; try data.seed=0"]),
        (["data.val_fraction=most"], ["data.val_fraction = most: expected a number; try data.val_fraction=0.2"]),
        (["model=bert", "data=sst2", "data.seq_len=long"], ["data.seq_len = long: expected a whole number; try "]),
        (["data=image_folder", "data.path=x", "data.side=8.5"], ["data.side = 8.5: expected a whole number"]),
        (
            ["data=image_folder", "data.path=x", "data.flip=maybe"],
            ["data.flip = maybe: expected true or false; try data.fl"],
        ),
        (
            ["model=gpt2", "data=text", "data.path=x", "data.vocab_size=300.5"],
            ["data.vocab_size = 300.5: expected a wh", "data.num_classes = 300.5: expected a whole number"],
        ),
        (
            ["+optimizer.eps=a"],
            ["optimizer.eps = a: expected a number; try optimizer.eps=1e-08"],
        ),
    ],
)
def test_what_a_class_cannot_take_is_one_line_each(overrides, complaints, compose):
    config = compose(*overrides)
    with pytest.raises(ConfigError) as caught:
        built(config)
    assert len(caught.value.complaints) == len(complaints)
    for line, expected in zip(caught.value.complaints, complaints, strict=True):
        assert line.startswith(expected)


def test_all_complaints_come_at_once(compose):
    with pytest.raises(ConfigError) as caught:
        compose("data.batch_size=0", "optimizer.lr=-1", "trainer.max_epochs=0")
    assert [line.split(" =")[0] for line in caught.value.complaints] == [
        "data.batch_size",
        "trainer.max_epochs",
        "optimizer.lr",
    ]


def test_a_longer_sequence_and_a_padded_vocabulary_are_room_to_spare(compose):
    config = compose("model=mini_transformer", "data=synthetic", "model.seq_len=256", "model.vocab_size=2048")
    assert config.model["seq_len"] == 256


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (["model=simple_net"], "simple_net"),
        (["model=own", "model._target_=mine.Net"], "mine.Net"),
        (["model._target_=mine.Net"], "mine.Net"),
        (["model=timm", "model.model_name=convnext_tiny"], "timm.convnext_tiny"),
        (["model=transformers", "data=synthetic", "model.config.model_type=roberta"], "transformers.roberta"),
        (["model=simple_net", "+model.label=narrow"], "narrow"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_run_its_directory_and_its_wandb_run_have_the_name_of_its_network(words, name):
    with initialize_config_dir(str(CONF), version_base="1.3"):
        config = compose_node("config", [*words, "compile.mode=eager"], return_hydra_config=True)
        HydraConfig.instance().set_config(config)
        assert config.job.model == name
        assert config.hydra.run.dir.endswith(f"-{name}-eager")
        assert config.logger.wandb.name == f"{name}-eager"
