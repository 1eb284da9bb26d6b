"""The studies of conf/experiment: each composes, asks something, and sweeps both sides of what it compares."""

import itertools
from dataclasses import replace
from pathlib import Path

import pytest
from hydra import compose as hydra_compose
from hydra import initialize_config_dir
from hydra.core.override_parser.overrides_parser import OverridesParser

from tests.conftest import CONF
from tests.sweeps import GPU
from trainkit.analysis.studies import evaluate_study, read_study
from trainkit.config.composition import FORWARD, compose_config
from trainkit.config.schema import RunConfig
from trainkit.results.requested import requested_fields

STUDIES = CONF / "experiment" / "studies"
NAMES = sorted(path.stem for path in STUDIES.glob("*.yaml"))


def sweep(name: str) -> dict[str, list[str]]:
    """The overrides of each setting that a study sweeps."""
    with initialize_config_dir(str(CONF), version_base="1.3"):
        params = hydra_compose("config", [f"experiment={name}"], return_hydra_config=True).hydra.sweeper.params
    return swept_values([f"{key}={words}" for key, words in params.items()])


def swept_values(overrides: list[str]) -> dict[str, list[str]]:
    """The overrides of one value each, by their key."""
    parser, values = OverridesParser.create(), {}
    for word in overrides:
        override = parser.parse_override(word)
        key, _, plain = word.partition("=")
        swept = override.sweep_string_iterator() if override.is_sweep_override() else [plain]
        values[key] = [f"{key}={value}" for value in swept]
    return values


def first_job(values: dict[str, list[str]]) -> list[str]:
    """The overrides of a sweep's first job."""
    return [swept[0] for swept in values.values()]


def is_forward(name: str) -> bool:
    """As `make studies` finds out whether scripts/bench.py or train.py runs a study."""
    study = STUDIES / f"{name.rpartition('/')[2]}.yaml"
    return "\n  kind: forward\n" in study.read_text()


def composed(name: str, each: list[list[str]], run_dir: Path) -> list[RunConfig]:
    script = FORWARD if is_forward(name) else "config"
    return [
        compose_config([f"experiment={name}", *of], CONF, str(run_dir / f"{script}{n}"), script)
        for n, of in enumerate(each)
    ]


@pytest.mark.parametrize("name", NAMES)
def test_a_study_asks_something_composes_and_each_comparison_has_both_sides(name, tmp_path):
    study = read_study(STUDIES / f"{name}.yaml")
    assert study.question.endswith("?")
    planned = [one for claim in study.claims for one in claim.comparisons] + list(study.comparisons)
    named = {word for one in planned for words in (one.choice, one.baseline) for word in words.split()}
    values = sweep(f"studies/{name}")
    compared, left_out = enough_to_compare(values, named)
    each = [list(of) for of in itertools.product(*compared.values())]
    if study.also:
        each += [list(of) for of in itertools.product(*swept_values(study.also.split()).values())]
    found = composed(f"studies/{name}", [*each, *jobs_of_other_values(values, compared)], tmp_path)
    assert len(found) > 1
    assert {config.job.kind == "forward" for config in found} == {is_forward(name)}
    figures = dict.fromkeys([one.column for one in planned if one.column], 1.0) | {"step_time_ms": 1.0}
    rows = [
        replace(
            GPU, **requested_fields(config), **figures, effective_mode=config.compile.mode,
            cache_found=config.compile.cache,
        )
        for config in found[: len(each)]
    ]  # fmt: skip
    for measured in evaluate_study(study, rows).all_comparisons:
        words = f"{measured.planned.choice} {measured.planned.baseline}".split()
        assert measured.pairs or not left_out.isdisjoint(words), measured.planned
    (small,) = composed(f"studies/small/{name}", [first_job(sweep(f"studies/small/{name}"))], tmp_path / "small")
    assert (small.job.kind == "forward") == is_forward(name)
    assert small.job.kind == "forward" or small.data["num_batches"] < found[0].data["num_batches"]


def enough_to_compare(values: dict[str, list[str]], named: set[str]) -> tuple[dict[str, list[str]], set[str]]:
    """Of a swept number the first and last that a comparison names, or else one; of the networks those, or else two;
    all values of other settings. Also the named numbers between, which are left out."""
    compared, left_out = dict(values), set()
    for key, swept in values.items():
        if key == "model":
            compared[key] = [word for word in swept if word in named] or swept[:2]
        elif is_number(swept):
            numbers = [word for word in swept if word in named] or swept[:1]
            compared[key] = list(dict.fromkeys([numbers[0], numbers[-1]]))
            left_out |= set(numbers).difference(compared[key])
    return compared, left_out


def jobs_of_other_values(values: dict[str, list[str]], compared: dict[str, list[str]]) -> list[list[str]]:
    """Each value that is not compared beside the first ones of the other settings; of numbers the last."""
    first = {key: swept[0] for key, swept in values.items()}
    each = []
    for key, swept in values.items():
        others = [word for word in swept if word not in compared[key]]
        each += [list((first | {key: word}).values()) for word in (others[-1:] if is_number(swept) else others)]
    return each


def is_number(swept: list[str]) -> bool:
    return swept[0].partition("=")[2].isdigit()


@pytest.mark.parametrize(
    ("name", "network", "shape"),
    [
        ("shape_change", "SimpleNet", (32, 512, 1, 1)),
        ("modes_forward", "BottleneckNet", (32, 3, 224, 224)),
        ("functions_or_whole_forward", "CostlyFunctions", (16, 3, 224, 224)),
        ("parts_or_whole_forward", "MultiScaleNet", (32, 3, 64, 64)),
        ("random_heads", "MultiScaleNet", (32, 3, 64, 64)),
        ("four_networks", "ResNet50", (32, 3, 224, 224)),
        ("transformer_modes", "GPT2", (32, 256)),
        ("small_convnet", "SimpleCNN", (32, 3, 32, 32)),
        ("small_transformer", "MiniTransformer", (16, 128)),
        ("statement_chain", "StatementChain", (8, 16, 1, 1)),
    ],
)
def test_a_tutorials_experiment_calls_what_the_tutorial_called(name, network, shape, tmp_path):
    (config,) = composed(f"studies/{name}", [first_job(sweep(f"studies/{name}"))], tmp_path)
    assert (config.job.kind, config.amp.precision) == ("forward", "32-true")
    assert config.model["_target_"].endswith(f".{network}")
    batch_size, data = config.data["batch_size"], config.data
    sizes = {"images": (data["channels"], data["image_size"], data["image_size"]), "tokens": (data["seq_len"],)}
    assert (batch_size, *sizes[config.model["inputs"]]) == shape
