"""The loss and the metric of a run: what `objective` may name, and what does not fit is one line."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, mse_loss
from torchmetrics.classification import MulticlassF1Score

from trainkit.config.errors import ConfigError
from trainkit.results.files import read_epochs
from trainkit.training.criterion import Criterion, build_criterion
from trainkit.training.loss import CrossEntropy, MeanSquaredError
from trainkit.training.metric import Accuracy, TorchMetric
from trainkit.training.objective import Objective
from trainkit.training.run import run

QUICK = ("compile.mode=eager", "trainer.max_epochs=1", "trainer.limit_train_batches=4")
F1 = "torchmetrics.classification.MulticlassF1Score"


def own_sum(tensor: Tensor) -> Tensor:
    return tensor


def computed(metric: Accuracy | TorchMetric, *batches: tuple[Tensor, Tensor]) -> float | None:
    metric.reset(torch.device("cpu"))
    for batch in batches:
        metric.update(metric.in_graph(*batch))
    return metric.compute(own_sum)


class Halves(nn.Module):
    """Another package's loss: it takes whatever the network returns."""

    __module__ = "lab"

    def forward(self, outputs: dict[str, Tensor], targets: Tensor) -> Tensor:
        return (outputs["left"] + outputs["right"] - targets).square().mean()

    def for_metric(self, outputs: dict[str, Tensor], targets: Tensor) -> tuple[Tensor, Tensor]:
        return outputs["left"] + outputs["right"], targets


@pytest.mark.parametrize(("dim", "shape"), [(-1, (4, 10)), (-1, (2, 5, 10)), (1, (2, 10, 3, 3))])
def test_cross_entropy_has_its_classes_in_the_given_dimension(dim, shape):
    logits = torch.randn(shape)
    classes_second = logits.movedim(dim, 1)
    targets = torch.randint(0, 10, classes_second[:, 0].shape)
    loss = CrossEntropy(dim)
    torch.testing.assert_close(loss(logits, targets), cross_entropy(classes_second, targets))
    expected = (logits.argmax(dim) == targets).double().mean().item()
    assert computed(Accuracy(), loss.for_metric(logits, targets)) == pytest.approx(expected)


def test_targets_that_cross_entropy_ignores_do_not_count():
    logits = torch.eye(3).repeat(2, 1)
    targets = torch.tensor([0, 1, 2, 2, -100, -100])
    assert computed(Accuracy(), (logits, targets)) == 3 / 4
    assert computed(Accuracy(), (logits[:1], targets[-1:])) is None


def test_squared_errors_take_outputs_with_a_dimension_of_one_and_no_other_shape():
    outputs, targets = torch.randn(6, 1), torch.randn(6)
    torch.testing.assert_close(MeanSquaredError()(outputs, targets), mse_loss(outputs[:, 0], targets))
    with pytest.raises(ValueError, match=r"^outputs \(6, 2\) for targets \(6,\)$"):
        MeanSquaredError()(outputs.repeat(1, 2), targets)


def test_a_metric_of_torchmetrics_gets_copies_at_least_in_float32():
    metric = MulticlassF1Score(num_classes=3, average="macro")
    logits, targets = torch.eye(3).bfloat16(), torch.tensor([0, 1, 1])
    wrapped = TorchMetric(metric)
    assert (wrapped.name, wrapped.higher_is_better) == ("MulticlassF1Score", True)
    seen = []
    metric.update = lambda *batch: seen.extend(batch)
    wrapped.update(wrapped.in_graph(logits, targets))
    assert [tensor.dtype for tensor in seen] == [torch.float32, torch.int64]
    assert seen[1].data_ptr() != targets.data_ptr()


def test_a_loss_of_ones_own_gets_all_outputs_and_chooses_what_the_metric_takes():
    class Net(nn.Module):
        def forward(self, inputs: Tensor) -> dict[str, Tensor]:
            return {"left": inputs, "right": inputs, "logits": inputs}

    objective = Objective(Net(), criterion=Criterion(Halves(), Accuracy())).eval()
    inputs = torch.eye(4)
    loss, scored = objective(inputs, 2 * inputs)
    assert loss == 0
    assert scored.shape == (2,)
    assert objective.train()(inputs, inputs) == 0.25


def test_a_function_is_the_loss_with_the_other_settings_as_its_arguments(compose):
    smooth = "objective._target_=torch.nn.functional.cross_entropy"
    config = compose("objective=own", smooth, "+objective.label_smoothing=0.5")
    criterion = build_criterion(config)
    logits, targets = torch.randn(4, 10), torch.arange(4)
    assert criterion.takes_logits
    assert criterion.metric is None
    torch.testing.assert_close(criterion.loss(logits, targets), cross_entropy(logits, targets, label_smoothing=0.5))


def test_rows_and_epochs_have_the_metric_by_name_and_an_accuracy_only_if_it_is_one(compose, tmp_path):
    row = run(compose(f"objective.metric._target_={F1}", "+objective.metric.num_classes=10", *QUICK))
    (record,) = read_epochs(tmp_path / "run")
    assert (row.status, row.objective, row.val_accuracy, record.val_accuracy) == ("ok", "cross_entropy", None, None)
    assert (row.metric_name, row.metric_higher_is_better) == ("MulticlassF1Score", True)
    assert 0 < row.val_metric == record.val_metric < 1
    plain = run(compose(*QUICK, run_dir=tmp_path / "plain"))
    assert (plain.metric_name, plain.val_metric) == ("accuracy", plain.val_accuracy)
    assert plain.val_loss == row.val_loss


def test_a_loss_of_torch_trains_without_a_metric(compose):
    row = run(compose("objective=own", "objective._target_=torch.nn.CrossEntropyLoss", *QUICK))
    assert (row.status, row.objective) == ("ok", "torch.nn.CrossEntropyLoss")
    assert (row.metric_name, row.val_metric, row.val_accuracy) == (None, None, None)
    assert 0 < row.val_loss < 10


@pytest.mark.parametrize(
    ("overrides", "complaint"),
    [
        (
            ["objective=mse"],
            r"objective = mse: ValueError: outputs \(2, 10\) for targets \(2,\); model = ",
        ),
        (
            ["objective=own"],
            r"objective\._target_ = None: names no class; choose objective=NAME",
        ),
        (["objective=own", "objective._target_=torch.nn.Los"], r"objective\._target_ = torch\.nn\.Los: "),
        (
            ["objective=own", "objective._target_=torch.nn.L1Loss"],
            "objective = torch.nn.L1Loss: ",
        ),
        (
            ["objective.dim=1", "model=gpt2", "data=synthetic"],
            "model = gpt2: does not fit data = synthetic: ",
        ),
        (
            ["objective.metric._target_=torch.nn.L1Loss"],
            r"objective\.metric\._target_ = torch\.nn\.L1Loss: is no ",
        ),
        (["objective.metric._target_=torchmetrics.MeanMetric"], r"objective\.metric\._target_ = .*: has no direction"),
        (
            ["objective.metric._target_=torchmetrics.R2Score"],
            r"objective\.metric\._target_ = torchmetrics\.R2Score: .*\(2, 10\) for targets int64 \(2,\)$",
        ),
    ],
)
def test_what_does_not_fit_is_one_line_before_the_run(overrides, complaint, compose):
    with pytest.raises(ConfigError, match=f"^{complaint}") as caught:
        run(compose(*overrides, *QUICK))
    assert len(caught.value.complaints) == 1


def test_the_objective_of_a_segmentation_says_which_dimension_the_classes_have(compose):
    class Segments(nn.Module):
        def forward(self, images: Tensor) -> Tensor:
            return images.new_zeros(len(images), 10, *images.shape[2:])

    from trainkit.training.criterion import check_criterion

    config, images = compose(), torch.zeros(2, 1, 8, 8)
    with pytest.raises(ConfigError, match=r"for classes in dimension 1 say objective\.dim=1$"):
        check_criterion(config, Criterion(), Segments()(images), images[:, 0].long(), {"num_classes": 10})
    check_criterion(config, Criterion(CrossEntropy(1)), Segments()(images), images[:, 0].long(), {"num_classes": 10})


def test_a_loss_with_parameters_is_averaged_over_ranks_with_the_network_or_refused(compose):
    words = (
        "objective=own",
        "objective._target_=torch.nn.Linear",
        "+objective.in_features=1",
        "+objective.out_features=1",
    )
    words = (*words, "ddp.strategy=compiled", "compile.backend=aot_eager")
    assert build_criterion(compose(*words)).takes_logits
    with pytest.raises(
        ConfigError, match=r"^compile\.scope = net: .* objective = torch\.nn\.Linear; use compile\.scope=s"
    ):
        build_criterion(compose(*words, "compile.scope=net"))
