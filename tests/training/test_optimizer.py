"""The optimizer: its implementation, schedule, clipping, skipped steps, and the state of a checkpoint."""

import copy

import pytest
import torch
from lightning.pytorch.plugins import MixedPrecision
from torch import nn
from torch.amp import GradScaler

from tests.conftest import parameters
from tests.networks import network
from trainkit.config.errors import ConfigError
from trainkit.results.files import read_epochs
from trainkit.training import components
from trainkit.training.optimizer import SkippedSteps, build_optimizer, schedule_factor
from trainkit.training.run import run

EAGER = ("compile.mode=eager", "trainer.max_epochs=2")


@pytest.mark.parametrize("fused", [False, True])
def test_skipped_steps_are_those_in_which_a_gradient_is_not_finite(fused):
    weight = nn.Parameter(torch.ones(3))
    optimizer = torch.optim.AdamW([weight], lr=0.1, fused=fused)
    scaler = GradScaler("cpu", init_scale=1024.0, growth_interval=2)
    skipped = SkippedSteps(scaler, torch.device("cpu"))
    overflows = [True, False, False, True, True, False, False, False, True]
    moved = []
    for overflow in overflows:
        before = weight.detach().clone()
        optimizer.zero_grad()
        scaler.scale(weight.sum() * (float("inf") if overflow else 1.0)).backward()
        scaler.step(optimizer)
        scaler.update()
        skipped.after_batch()
        skipped.after_batch()  # a batch that only accumulates
        moved.append(not torch.equal(before, weight))
    assert moved == [not overflow for overflow in overflows]
    assert skipped.count() == 4


@pytest.fixture
def fp16_on_the_cpu(monkeypatch):
    """amp=fp16 as Lightning does it, with a scaler whose first two scales are too large for every gradient."""

    def with_scaler(config, *others):
        trainer = trainer_of(config, *others)
        scaler = GradScaler("cpu", init_scale=2.0**100, backoff_factor=2.0**-45)
        trainer.strategy.precision_plugin = MixedPrecision("16-mixed", "cpu", scaler)
        return trainer

    trainer_of = components.build_trainer
    monkeypatch.setattr(components, "build_trainer", with_scaler)


@pytest.mark.parametrize("implementation", ["fused", "foreach"])
def test_the_row_and_the_records_count_skipped_steps(implementation, compose, tmp_path, fp16_on_the_cpu, recwarn):
    schedule = ("trainer.schedule=cosine", "trainer.warmup_steps=1")
    row = run(compose(network("Plain"), *EAGER, *schedule, f"optimizer.{implementation}=true"))
    assert (row.status, row.num_steps, row.num_skipped_steps) == ("ok", 44, 2)
    assert [record.num_skipped_steps for record in read_epochs(tmp_path / "run")] == [2, 0]
    assert [str(warning.message) for warning in recwarn if "lr_scheduler" in str(warning.message)] == []
    checkpoint = torch.load(tmp_path / "run" / "checkpoints" / "last.ckpt", weights_only=True)
    assert checkpoint["global_step"] == checkpoint["lr_schedulers"][0]["last_epoch"] == 44  # they count as steps
    assert {float(state["step"]) for state in checkpoint["optimizer_states"][0]["state"].values()} == {42.0}


def test_without_a_scaler_skipped_steps_are_unknown(compose):
    assert run(compose(network("Plain"), "amp=bf16", *EAGER)).num_skipped_steps is None


UNSTEADY = ("optimizer=sgd", "optimizer.momentum=0", "optimizer.lr=0.1")

OPTIMIZERS = {"adamw": ("optimizer=adamw", "optimizer.lr=1e-3"), "sgd": UNSTEADY}


def close(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    return all(torch.allclose(a[name], b[name], rtol=1e-5, atol=1e-6) for name in a)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("precision", ["off", "bf16", "fp16"])
def test_a_fused_optimizer_clips_as_clip_grad_norm_does(optimizer, precision, compose, tmp_path, request):
    if precision == "fp16":
        request.getfixturevalue("fp16_on_the_cpu")
    amp = "off" if precision == "fp16" else precision

    def trained(name: str, *settings: str) -> dict[str, torch.Tensor]:
        asked = (network("Plain"), *EAGER, *OPTIMIZERS[optimizer], f"amp={amp}", "trainer.accumulate_grad_batches=2")
        assert run(compose(*asked, *settings, run_dir=tmp_path / name)).status == "ok"
        return parameters(tmp_path / name)

    limit = "trainer.gradient_clip_val=0.1"
    fused = trained("fused", "optimizer.fused=true", limit)
    assert close(fused, trained("foreach", "optimizer.foreach=true", limit))
    free = trained("free", "optimizer.fused=true")
    assert not close(fused, free)
    below = trained("below", "optimizer.fused=true", "trainer.gradient_clip_val=1e6")
    assert all(torch.equal(below[name], free[name]) for name in free)


def test_bf16_is_clipped_beside_a_fused_optimizer(compose, tmp_path):
    asked = (
        "amp=bf16",
        "compile.mode=eager",
        "trainer.max_epochs=1",
        "optimizer=sgd",
        "optimizer.momentum=0",
        "optimizer.weight_decay=0",
    )
    start = run(compose(*asked, "optimizer.lr=1e-9", run_dir=tmp_path / "start"))
    row = run(compose(*asked, "optimizer.lr=1", "trainer.gradient_clip_val=1e-3", run_dir=tmp_path / "clipped"))
    assert (start.status, row.status) == ("ok", "ok")
    before, after = (parameters(tmp_path / name) for name in ("start", "clipped"))
    weights = [key for key in before if key.endswith(("weight", "bias"))]
    moved = sum(float((after[key] - before[key]).square().sum()) for key in weights) ** 0.5
    assert 0 < moved <= 22 * 1e-3 * 1.01  # so many steps of that length at most


@pytest.mark.parametrize("optimizer", ["adamw", "sgd"])
@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ((), (True, None)),
        (("fused=true",), (True, None)),
        (("fused=false",), (None, None)),
        (("foreach=true",), (None, True)),
        (("foreach=false",), (None, False)),
        (("fused=true", "foreach=false"), (True, False)),
    ],
)
def test_the_implementation_of_an_optimizer_is_the_one_asked_for(optimizer, settings, expected, compose):
    config = compose(f"optimizer={optimizer}", *(f"optimizer.{setting}" for setting in settings))
    defaults = build_optimizer(config)(nn.Linear(1, 1)).defaults
    assert (defaults["fused"], defaults["foreach"]) == expected


def test_fp16_leaves_sgd_with_momentum_unfused(compose):
    asked = ("amp=fp16", "optimizer=sgd")
    assert not build_optimizer(compose(*asked))(nn.Linear(1, 1)).defaults["fused"]
    assert build_optimizer(compose(*asked, "optimizer.momentum=0"))(nn.Linear(1, 1)).defaults["fused"]
    with pytest.raises(ConfigError, match=r"^optimizer\.fused = True: torch's fused SGD loses its momentum .*; use "):
        build_optimizer(compose(*asked, "optimizer.fused=true"))


@pytest.mark.parametrize("setting", ["fused", "foreach"])
def test_an_implementation_that_an_optimizer_lacks_is_one_line(setting, compose):
    config = compose("optimizer._target_=torch.optim.LBFGS", f"optimizer.{setting}=true")
    with pytest.raises(ConfigError, match=rf"^optimizer\.{setting} = True: LBFGS has no such setting; leave it out$"):
        build_optimizer(config)


SHORT = ("compile.mode=eager", "trainer.limit_train_batches=8", "model.width=8", "optimizer.lr=1e-3")


@pytest.mark.parametrize("optimizer", ["adamw", "sgd"])
@pytest.mark.parametrize(("first", "then"), [("true", "false"), ("false", "true")])
def test_a_run_goes_on_in_another_layout(first, then, optimizer, compose, tmp_path):
    asked = (*SHORT, f"optimizer={optimizer}")
    run(compose(*asked, "trainer.max_epochs=2", run_dir=tmp_path / "whole"))
    run(compose(*asked, "trainer.max_epochs=1", f"trainer.channels_last={first}", run_dir=tmp_path / "parts"))
    half = parameters(tmp_path / "parts")
    resumed = ("trainer.max_epochs=2", f"trainer.channels_last={then}", "ckpt_path=last")
    assert run(compose(*asked, *resumed, run_dir=tmp_path / "parts")).status == "ok"
    whole, parts = parameters(tmp_path / "whole"), parameters(tmp_path / "parts")
    assert parts.keys() == whole.keys()
    for name, weight in whole.items():
        torch.testing.assert_close(parts[name], weight, rtol=1e-3, atol=1e-4)
    assert not torch.allclose(half["objective.net.conv2.weight"], whole["objective.net.conv2.weight"], atol=1e-3)


def test_a_run_goes_on_in_another_implementation_of_its_optimizer(compose, tmp_path):
    asked = (*SHORT, "optimizer=adamw")
    for name, settings in (("fused", ("fused=true",)), ("foreach", ("foreach=true",))):
        run(compose(*asked, "trainer.max_epochs=1", *(f"optimizer.{s}" for s in settings), run_dir=tmp_path / name))
    for name, other in (("fused", "foreach"), ("foreach", "fused")):
        run(
            compose(
                *asked, "trainer.max_epochs=2", f"optimizer.{other}=true", "ckpt_path=last", run_dir=tmp_path / name
            )
        )
        path = tmp_path / name / "checkpoints" / "last.ckpt"
        (group,) = torch.load(path, weights_only=True)["optimizer_states"][0]["param_groups"]
        assert bool(group[other]) > bool(group[name])
    assert close(parameters(tmp_path / "fused"), parameters(tmp_path / "foreach"))


@pytest.mark.parametrize("optimizer", ["adamw", "sgd", "muon"])
def test_every_optimizer_learns(optimizer, compose):
    row = run(compose(f"optimizer={optimizer}", "compile.mode=eager", "trainer.max_epochs=4"))
    assert row.val_accuracy > 0.9


def test_norms_and_biases_may_be_left_without_weight_decay(compose):
    net = nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4))
    config = compose("optimizer.groups._target_=trainkit.training.parameter_groups.decay_matrices")
    matrices, vectors = build_optimizer(config)(net).param_groups
    assert (matrices["params"], matrices["weight_decay"]) == ([net[0].weight], config.optimizer["weight_decay"])
    assert (vectors["params"], vectors["weight_decay"]) == ([net[0].bias, *net[1].parameters()], 0.0)


def test_muon_trains_the_hidden_matrices_and_goes_on_from_a_checkpoint(compose):
    net = nn.Sequential(nn.Embedding(5, 4), nn.Linear(4, 4), nn.Linear(4, 2))
    make = build_optimizer(compose("optimizer=muon", "optimizer.lr=0.1"))

    def step(net, optimizer):
        net(torch.arange(5)).square().sum().backward()
        optimizer.step()
        optimizer.zero_grad()

    optimizer = make(net)
    step(net, optimizer)
    states = {name: sorted(optimizer.state[parameter]) for name, parameter in net.named_parameters()}
    assert states == {
        "0.weight": ["exp_avg", "exp_avg_sq", "step"],
        "1.weight": ["momentum_buffer"],
        "1.bias": ["exp_avg", "exp_avg_sq", "step"],
        "2.weight": ["exp_avg", "exp_avg_sq", "step"],
        "2.bias": ["exp_avg", "exp_avg_sq", "step"],
    }
    resumed_net = copy.deepcopy(net)
    resumed = make(resumed_net)
    resumed.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    for group in (*optimizer.param_groups, *resumed.param_groups):
        group["lr"] = 0.01  # as a schedule does
    before = copy.deepcopy(net)
    step(net, optimizer)
    step(resumed_net, resumed)
    for old, new, again in zip(before.parameters(), net.parameters(), resumed_net.parameters(), strict=True):
        assert torch.equal(new, again)
        assert 0 < (new - old).abs().max() < 0.05


def test_muon_does_not_take_shards(compose):
    config = compose("optimizer=muon", "ddp.strategy=fsdp2", "compile.mode=eager")
    with pytest.raises(ConfigError, match=r"^ddp\.strategy = fsdp2: has shards of matrices, .*; use optimizer=adamw$"):
        build_optimizer(config)


def test_complex_parameters_are_not_fused_unless_that_is_asked_for(compose):
    net = nn.ParameterList([torch.ones(2, dtype=torch.complex64)])
    assert build_optimizer(compose())(net).defaults["fused"] is None
    matrix = nn.ParameterList([torch.ones(2, 2, dtype=torch.complex64)])
    assert not any(group["is_hidden"] for group in build_optimizer(compose("optimizer=muon"))(matrix).param_groups)
    with pytest.raises(ConfigError, match=r"^optimizer\.fused = True: .*; leave it out$"):
        build_optimizer(compose("optimizer.fused=true"))(net)


def test_groups_that_fail_or_leave_out_parameters_are_one_line(compose):
    for groups, problem in (
        ("tests.networks.no_groups", "leaves out 2 parameters; put each into a group"),
        ("tests.networks.groups_of_another_network", r".*\(at tests/networks\.py:\d+\); it takes the network and .*"),
    ):
        make = build_optimizer(compose(f"optimizer.groups._target_={groups}"))
        with pytest.raises(ConfigError, match=rf"^optimizer\.groups\._target_ = {groups}: {problem}$"):
            make(nn.Linear(1, 1))


def test_the_schedule_warms_up_then_falls_as_half_a_cosine():
    factor = schedule_factor("cosine", 4, 14)
    assert [factor(step) for step in range(4)] == [0.25, 0.5, 0.75, 1.0]
    assert factor(4) == 1.0
    assert factor(9) == pytest.approx(0.5)
    assert factor(14) == pytest.approx(0.0)
    assert schedule_factor("constant", 2, 10)(9) == 1.0


def test_an_optimizer_that_needs_a_closure_is_refused(compose):
    config = compose("optimizer._target_=torch.optim.LBFGS", "optimizer.lr=1.0")
    config.optimizer.pop("weight_decay", None)
    with pytest.raises(ConfigError, match=r"LBFGS: computes the loss several times in a step; choose optimizer=adamw"):
        build_optimizer(config)
