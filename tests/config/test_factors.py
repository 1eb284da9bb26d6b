"""Which factors a race varies: conf/tune, the conditions, and what was typed."""

from pathlib import Path

import pytest

from tests.conftest import CONF
from trainkit.config.errors import ConfigError
from trainkit.config.factors import (
    CONDITIONS,
    Factor,
    FactorValue,
    LeftOut,
    begins_with,
    conditions_of,
    drop_constant,
    narrow,
    read_factors,
    split_typed,
)
from trainkit.config.schema import SETTINGS, RunConfig
from trainkit.config.settings import value_of
from trainkit.tuning.space import Space, saves_memory

FACTORS = read_factors([CONF])


def settings(chosen: list[Factor]) -> dict[str, list[str]]:
    return {factor.setting: list(factor.values) for factor in chosen}


@pytest.mark.parametrize("factor", FACTORS, ids=lambda factor: factor.setting)
def test_every_factor_of_conf_composes_with_each_of_its_values(factor: Factor, compose):
    for value in factor.values:
        if value != "auto":
            needed = [f"{name}={needed}" for name, needed in factor.values[value].together.items()]
            config = compose(f"{factor.setting}={value}", *needed)
            assert isinstance(config, RunConfig)
            if factor.setting in SETTINGS and "." in factor.setting:
                assert begins_with(factor.setting, config, {}) == value


def test_a_cpu_a_network_and_its_data_choose_the_factors(compose):
    images = compose("model=resnet18", "data=digits", "trainer.accelerator=cpu")
    chosen, left_out = narrow(FACTORS, split_typed([]), conditions_of(images, 0, 1), "train")
    assert settings(chosen) == {
        "trainer.channels_last": ["true", "false"],
        "compile.mode": ["default", "max-autotune-no-cudagraphs"],
        "compile.scope": ["step", "net"],
        "optimizer.foreach": ["true", "null"],
    }
    reasons = {left.settings: left.reason for left in left_out}
    assert reasons["compile.mode=reduce-overhead"] == "needs a GPU"
    assert reasons["trainer.attention"] == CONDITIONS["attention"]
    assert reasons["amp"] == "changes the training; name it, as in amp=off,bf16,bf16_true"


def test_a_network_of_images_tells_what_data_of_the_users_are(compose):
    network = ("model=resnet18", "model.channels=1", "model.num_classes=10")
    own = compose(*network, "data=module", "data.module._target_=mine.Digits", "trainer.accelerator=cpu")
    assert "images" in conditions_of(own, 0, 1)


def test_a_gpu_several_processes_varying_lengths_and_a_limit_add_theirs(compose):
    texts = compose("model=gpt2", "data=synthetic", "data.seq_lens=[32,64]", "amp=bf16", "trainer.accelerator=gpu")
    chosen, _ = narrow(FACTORS, split_typed([]), conditions_of(texts, 2, 2), "train")
    assert settings(chosen) == {
        "trainer.activation_checkpointing": ["true", "false"],
        "trainer.attention": ["cudnn", "flash", "efficient", "auto"],
        "compile.dynamic": ["true", "false", "null"],
        "compile.mode": ["default", "reduce-overhead", "max-autotune-no-cudagraphs", "max-autotune"],
        "compile.scope": ["step", "net", "blocks"],
        "ddp.bucket_cap_mb": ["25", "100", "200"],
        "ddp.optimize_ddp": ["no_optimization", "true"],
        "ddp.shard_optimizer": ["true", "false"],
        "ddp.static_graph": ["true", "false"],
        "ddp.strategy": ["auto", "compiled", "fsdp2"],
        "optimizer.foreach": ["true", "null"],
    }


def test_a_value_that_needs_another_setting_is_left_out_where_that_is_typed_otherwise(compose):
    texts = compose("model=gpt2", "data=synthetic", "trainer.accelerator=cpu")
    met = conditions_of(texts, 0, 2)
    for typed in (["compile.scope=net"], ["compile.scope=step,net"]):
        chosen, left_out = narrow(FACTORS, split_typed(typed), met, "train")
        assert settings(chosen)["ddp.strategy"] == ["auto", "compiled"]
        assert LeftOut("ddp.strategy=fsdp2", "needs compile.scope=blocks") in left_out
    for typed in (["compile.scope=blocks"], ["compile.scope=step,blocks"]):
        chosen, _ = narrow(FACTORS, split_typed(typed), met, "train")
        assert settings(chosen)["ddp.strategy"] == ["auto", "compiled", "fsdp2"]


def test_calls_have_no_factors_of_training(compose):
    images = compose("model=resnet18", "data=digits", "trainer.accelerator=cpu")
    chosen, _ = narrow(FACTORS, split_typed([]), conditions_of(images, 0, 1), "forward")
    assert settings(chosen).keys() == {"trainer.channels_last", "compile.mode", "compile.scope"}


def test_typed_values_narrow_a_factor_and_one_value_fixes_it(compose):
    config = compose("model=resnet18", "data=digits", "trainer.accelerator=cpu")
    typed = split_typed(
        ["compile.mode=default,reduce-overhead", "compile.scope=net", "amp=off,bf16", "data.batch_size=auto", "seed=3"]
    )
    assert typed.fixed == ["compile.scope=net", "seed=3"]
    chosen, _ = narrow(FACTORS, typed, conditions_of(config, 0, 1), "train")
    assert settings(chosen) == {
        "compile.mode": ["default", "reduce-overhead"],
        "amp": ["off", "bf16"],
        "data.batch_size": ["auto"],
        "trainer.channels_last": ["true", "false"],
        "optimizer.foreach": ["true", "null"],
    }
    costs = {factor.setting: factor.values for factor in chosen}["compile.mode"]
    assert costs["reduce-overhead"].inductor == 1.2


def arms(compose, *overrides: str, num_processes: int = 1) -> list[str]:
    """The settings that a race tries beside those of the mode, one by one, on a GPU."""
    config = compose(*overrides, "trainer.accelerator=gpu")
    factors, _ = narrow(FACTORS, split_typed([]), conditions_of(config, num_processes, num_processes), "train")
    begins = {factor.setting: begins_with(factor.setting, config, {}) for factor in factors}
    factors, _ = drop_constant(factors, begins)
    names, space = [], Space(factors, begins)
    for arm in space.screening():
        if not saves_memory(space, arm.overrides):
            names.append(" ".join(name for name in arm.overrides if not name.startswith("compile.mode=")))
    return [name for name in names if name]


def test_an_eager_run_has_no_factors_of_compiled_ones(compose):
    config = compose("model=resnet18", "data=digits", "trainer.accelerator=cpu", "compile.mode=eager")
    typed = split_typed(["compile.mode=eager", "compile.dynamic=true,false"])
    factors, _ = narrow(FACTORS, typed, conditions_of(config, 0, 1), "train")
    begins = {"compile.mode": "eager"}
    begins |= {factor.setting: begins_with(factor.setting, config, {}) for factor in factors}
    varied, left_out = drop_constant(factors, begins)
    assert settings(varied).keys() == {"trainer.channels_last", "optimizer.foreach"}
    assert {left.settings for left in left_out} == {"compile.scope", "compile.dynamic"}


OF_IMAGES = ["trainer.channels_last=true", "compile.scope=net", "optimizer.foreach=true"]
OF_TEXTS = ["trainer.attention=efficient", "compile.scope=net", "compile.scope=blocks", "optimizer.foreach=true"]
OF_HALF_PRECISION = ["trainer.attention=cudnn", "trainer.attention=flash"]
OF_SEVERAL = [
    "ddp.bucket_cap_mb=100", "ddp.bucket_cap_mb=200", "ddp.optimize_ddp=no_optimization",
    "ddp.shard_optimizer=true ddp.strategy=compiled", "ddp.static_graph=true", "ddp.strategy=compiled",
]  # fmt: skip


@pytest.mark.parametrize(
    ("overrides", "num_processes", "expected"),
    [
        (["model=resnet18"], 1, OF_IMAGES),
        (["model=resnet18"], 2, [*OF_IMAGES, *OF_SEVERAL]),
        (["model=gpt2", "data=synthetic"], 1, OF_TEXTS),
        (["model=gpt2", "data=synthetic", "amp=bf16"], 1, [*OF_TEXTS, *OF_HALF_PRECISION]),
    ],
    ids=["images", "several processes", "texts", "half precision"],
)
def test_a_plain_run_races_against_no_value_that_it_begins_with(
    overrides: list[str], num_processes: int, expected: list[str], compose
):
    assert sorted(arms(compose, *overrides, num_processes=num_processes)) == sorted(expected)


@pytest.mark.parametrize(
    ("begun", "expected"),
    [
        (["experiment=full_size/resnet50"], "trainer.channels_last=false"),
        (["model=gpt2", "data=synthetic", "compile.scope=blocks"], "compile.scope=step"),
        (["model=gpt2", "data=synthetic", "trainer.attention=math"], "trainer.attention=auto"),
        (["model=gpt2", "data=synthetic", "data.seq_lens=[32,64]", "compile.dynamic=true"], "compile.dynamic=null"),
        (["model=resnet18", "optimizer.foreach=true"], "optimizer.foreach=null"),
        (
            ["model=gpt2", "data=synthetic", "trainer.activation_checkpointing=true"],
            "trainer.activation_checkpointing=false",
        ),
    ],
)
def test_the_other_values_of_what_an_experiment_sets_are_tried(begun: list[str], expected: str, compose):
    tried = arms(compose, *begun)
    assert expected in tried
    assert not set(begun) & set(tried)


@pytest.mark.parametrize(
    ("begun", "expected"),
    [
        ("ddp.bucket_cap_mb=100", "ddp.bucket_cap_mb=25"),
        ("ddp.optimize_ddp=no_optimization", "ddp.optimize_ddp=true"),
        ("ddp.static_graph=true", "ddp.static_graph=false"),
        ("ddp.strategy=compiled", "ddp.strategy=auto"),
    ],
)
def test_the_other_values_of_what_an_experiment_sets_of_ddp_are_tried(begun: str, expected: str, compose):
    assert expected in arms(compose, "model=resnet18", begun, num_processes=2)


def test_without_a_sharded_optimizer_gradients_may_be_averaged_by_ddp_again(compose):
    begun = ["model=resnet18", "ddp.strategy=compiled", "ddp.shard_optimizer=true"]
    tried = arms(compose, *begun, num_processes=2)
    assert "ddp.shard_optimizer=false ddp.strategy=auto" in tried
    assert "ddp.shard_optimizer=false" in tried


def test_a_factor_without_another_value_than_the_first_is_left_out_with_the_reason():
    mine = Factor("ddp.bucket_cap_mb", {"50": FactorValue()})
    typed = Factor("compile.scope", {"net": FactorValue()}, is_named=True)
    mode = Factor("compile.mode", {"default": FactorValue()})
    begins = {"ddp.bucket_cap_mb": "50", "compile.scope": "net", "compile.mode": "default"}
    assert drop_constant([mine, typed, mode], begins) == (
        [typed, mode],
        [LeftOut("ddp.bucket_cap_mb", "the run begins with 50, and no other value can be tried")],
    )
    assert drop_constant([mine], {"ddp.bucket_cap_mb": "25"}) == ([mine], [])


def test_a_setting_without_a_file_changes_the_training_if_it_is_of_the_arithmetic_or_the_optimizer():
    typed = ["amp.precision=32-true,bf16-mixed", "+optimizer.betas=[0.9,0.999],[0.9,0.95]", "optimizer.lr=1,2"]
    same = ["optimizer.fused=true,false", "compile.max_recompiles=4,8"]
    chosen, _ = narrow([], split_typed([*typed, *same]), set(), "train")
    assert [factor.changes_training for factor in chosen] == [True, True, True, False, False]


def test_a_setting_without_a_file_is_a_factor_when_it_is_typed_with_several_values(compose):
    chosen, _ = narrow([], split_typed(["compile.max_recompiles=4,8"]), set(), "train")
    assert settings(chosen) == {"compile.max_recompiles": ["4", "8"]}


@pytest.mark.parametrize(
    ("override", "complaint"),
    [
        ("model.width=4,8", "model.width = 4,8: is other work"),
        ("trainer.accumulate_grad_batches=1,2", "trainer.accumulate_grad_batches = 1,2: is other work"),
        ("data.batch_size=auto,64", "data.batch_size = auto,64: auto finds the sizes itself"),
    ],
)
def test_another_work_is_no_factor(override: str, complaint: str):
    with pytest.raises(ConfigError, match=complaint):
        narrow(FACTORS, split_typed([override]), set(), "train")


def test_true_and_false_are_values_of_a_factor_as_its_file_has_them():
    assert split_typed(["ddp.shard_optimizer=false,true"]).swept == {"ddp.shard_optimizer": ["false", "true"]}


def test_a_setting_that_must_be_added_is_added_in_each_job():
    typed = split_typed(["+optimizer.betas=[0.9,0.999],[0.9,0.95]", "+compile.scope=net,step"])
    (betas, scope, *_), _ = narrow(FACTORS, typed, set(), "train")
    assert (betas.setting, list(betas.values)) == ("+optimizer.betas", ["[0.9,0.999]", "[0.9,0.95]"])
    assert scope.setting == "compile.scope"
    with pytest.raises(ConfigError, match=r"model.width = 4,8: is other work"):
        narrow(FACTORS, split_typed(["+model.width=4,8"]), set(), "train")


def test_a_range_is_no_list_of_values():
    with pytest.raises(ConfigError, match=r"^optimizer\.lr = interval\(0,1\): a race tries single values"):
        split_typed(["optimizer.lr=interval(0,1)"])


def test_a_file_that_is_no_factor_is_one_line(tmp_path: Path):
    (tmp_path / "tune").mkdir()
    path = tmp_path / "tune" / "mine.yaml"
    path.write_text("seting: compile.mode\n")
    with pytest.raises(ConfigError, match=r"mine\.yaml: is no factor: Key 'seting'"):
        read_factors([tmp_path])
    path.write_text("setting: compile.mode\nneeds: [tpu]\n")
    with pytest.raises(ConfigError, match=r"mine\.yaml: needs tpu: expected one of gpu, "):
        read_factors([tmp_path])


def test_a_factor_of_ones_own_replaces_that_of_conf(tmp_path: Path):
    (tmp_path / "tune").mkdir()
    (tmp_path / "tune" / "compile_mode.yaml").write_text("setting: compile.mode\nvalues: {default: {}}\n")
    factors = {factor.setting: factor for factor in read_factors([tmp_path, CONF])}
    assert list(factors["compile.mode"].values) == ["default"]
    assert "compile.scope" in factors


def test_what_a_run_begins_with_is_written_as_it_is_typed(compose):
    config = compose("model=resnet18", "data=digits")
    assert begins_with("amp", config, {"amp": "off"}) == "off"
    assert begins_with("trainer.channels_last", config, {}) == "false"
    assert begins_with("compile.dynamic", config, {}) == "null"
    assert value_of(config, "compile.dynamic") is None
