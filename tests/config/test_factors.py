"""Which factors a race varies: conf/tune, the conditions, and what was typed."""

from pathlib import Path

import pytest

from tests.conftest import CONF
from trainkit.config.errors import ConfigError
from trainkit.config.factors import (
    CONDITIONS,
    Factor,
    LeftOut,
    begins_with,
    conditions_of,
    narrow,
    read_factors,
    split_typed,
)
from trainkit.config.schema import SETTINGS, RunConfig
from trainkit.config.settings import value_of

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
    chosen, left_out = narrow(FACTORS, split_typed([]), conditions_of(images, 0, 1, False), "train")
    assert settings(chosen) == {
        "trainer.channels_last": ["true"],
        "compile.mode": ["default", "max-autotune-no-cudagraphs"],
        "compile.scope": ["net"],
        "optimizer.foreach": ["true"],
    }
    reasons = {left.settings: left.reason for left in left_out}
    assert reasons["compile.mode=reduce-overhead"] == "needs a GPU"
    assert reasons["trainer.attention"] == CONDITIONS["attention"]
    assert reasons["amp"] == "changes the training; name it, as in amp=off,bf16,bf16_true"


def test_a_gpu_several_processes_varying_lengths_and_a_limit_add_theirs(compose):
    texts = compose("model=gpt2", "data=synthetic", "data.seq_lens=[32,64]", "trainer.accelerator=gpu")
    chosen, _ = narrow(FACTORS, split_typed([]), conditions_of(texts, 2, 2, True), "train")
    assert settings(chosen) == {
        "trainer.activation_checkpointing": ["true"],
        "trainer.attention": ["cudnn", "flash", "efficient"],
        "compile.dynamic": ["true", "false"],
        "compile.mode": ["default", "reduce-overhead", "max-autotune-no-cudagraphs", "max-autotune"],
        "compile.scope": ["net", "blocks"],
        "ddp.bucket_cap_mb": ["100"],
        "ddp.optimize_ddp": ["no_optimization"],
        "ddp.shard_optimizer": ["true"],
        "ddp.static_graph": ["true"],
        "ddp.strategy": ["compiled", "fsdp2"],
        "optimizer.foreach": ["true"],
    }


def test_a_value_that_needs_another_setting_is_left_out_where_that_is_typed_otherwise(compose):
    texts = compose("model=gpt2", "data=synthetic", "trainer.accelerator=cpu")
    met = conditions_of(texts, 0, 2, False)
    for typed in (["compile.scope=net"], ["compile.scope=step,net"]):
        chosen, left_out = narrow(FACTORS, split_typed(typed), met, "train")
        assert settings(chosen)["ddp.strategy"] == ["compiled"]
        assert LeftOut("ddp.strategy=fsdp2", "needs compile.scope=blocks") in left_out
    for typed in (["compile.scope=blocks"], ["compile.scope=step,blocks"]):
        chosen, _ = narrow(FACTORS, split_typed(typed), met, "train")
        assert settings(chosen)["ddp.strategy"] == ["compiled", "fsdp2"]


def test_calls_have_no_factors_of_training(compose):
    images = compose("model=resnet18", "data=digits", "trainer.accelerator=cpu")
    chosen, _ = narrow(FACTORS, split_typed([]), conditions_of(images, 0, 1, False), "forward")
    assert settings(chosen).keys() == {"trainer.channels_last", "compile.mode", "compile.scope"}


def test_typed_values_narrow_a_factor_and_one_value_fixes_it(compose):
    config = compose("model=resnet18", "data=digits", "trainer.accelerator=cpu")
    typed = split_typed(
        ["compile.mode=default,reduce-overhead", "compile.scope=net", "amp=off,bf16", "data.batch_size=auto", "seed=3"]
    )
    assert typed.fixed == ["compile.scope=net", "seed=3"]
    chosen, _ = narrow(FACTORS, typed, conditions_of(config, 0, 1, False), "train")
    assert settings(chosen) == {
        "compile.mode": ["default", "reduce-overhead"],
        "amp": ["off", "bf16"],
        "data.batch_size": ["auto"],
        "trainer.channels_last": ["true"],
        "optimizer.foreach": ["true"],
    }
    costs = {factor.setting: factor.values for factor in chosen}["compile.mode"]
    assert costs["reduce-overhead"].inductor == 1.2


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
