"""The studies: each composes, and its page is made of its rows."""

import itertools
from dataclasses import replace
from pathlib import Path

import pytest
from hydra import compose as hydra_compose
from hydra import initialize_config_dir
from hydra.core.override_parser.overrides_parser import OverridesParser

from tests import forked
from tests.conftest import CONF, ROOT
from tests.sweeps import GPU, crossing, ops_row
from trainkit.analysis.candidates import dynamic_over_static
from trainkit.analysis.comparison import compare
from trainkit.analysis.studies import PlannedComparison, evaluate_study, read_study
from trainkit.config.composition import FORWARD, compose_config
from trainkit.config.schema import RunConfig
from trainkit.report.labels import pair_label
from trainkit.report.markdown import markdown_compiled
from trainkit.report.plots.palette import looks_of
from trainkit.report.plots.ratios import plot_dynamic_over, plot_speedups_over
from trainkit.report.plots.series import series_of
from trainkit.report.plots.times import plot_times_over
from trainkit.results.requested import requested_fields

STUDIES = CONF / "experiment" / "studies"
NAMES = sorted(path.stem for path in STUDIES.glob("*.yaml"))


def sweep(name: str) -> dict[str, list[str]]:
    """The overrides of each setting that a study sweeps."""
    with initialize_config_dir(str(CONF), version_base="1.3"):
        params = hydra_compose("config", [f"experiment={name}"], return_hydra_config=True).hydra.sweeper.params
    parser, values = OverridesParser.create(), {}
    for key, words in params.items():
        override = parser.parse_override(f"{key}={words}")
        swept = list(override.sweep_string_iterator()) if override.is_sweep_override() else [words]
        values[key] = [f"{key}={value}" for value in swept]
    return values


def jobs(name: str, every: bool) -> list[list[str]]:
    """The overrides of a study's sweep: each value of each setting once, beside the first ones of the others."""
    values = sweep(name)
    first = {key: swept[0] for key, swept in values.items()}
    each = [list((first | {key: value}).values()) for key, swept in values.items() for value in swept[1:]]
    return [list(first.values()), *(each if every else [])]


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
def test_a_study_composes_with_every_value_that_it_sweeps(name, tmp_path):
    found = composed(f"studies/{name}", jobs(f"studies/{name}", every=True), tmp_path)
    small, *_ = composed(f"studies/small/{name}", jobs(f"studies/small/{name}", every=False), tmp_path)
    assert len(found) > 1
    assert {config.job.kind == "forward" for config in (*found, small)} == {is_forward(name)}
    assert small.job.kind == "forward" or small.data["num_batches"] < found[0].data["num_batches"]


@pytest.mark.parametrize("name", NAMES)
def test_a_study_asks_something_and_each_comparison_has_both_sides(name, tmp_path):
    study = read_study(STUDIES / f"{name}.yaml")
    assert study.question.endswith("?")
    planned = [one for claim in study.claims for one in claim.comparisons] + list(study.comparisons)
    # Of a swept number the first and last that a comparison names, or else one, are enough here; of the networks two.
    named = {word for one in planned for words in (one.choice, one.baseline) for word in words.split()}
    values, left_out = sweep(f"studies/{name}"), set()
    for key, swept in values.items():
        if key == "model":
            values[key] = [word for word in swept if word in named] or swept[:2]
        elif swept[0].partition("=")[2].isdigit():
            numbers = [word for word in swept if word in named] or swept[:1]
            values[key] = list(dict.fromkeys([numbers[0], numbers[-1]]))
            left_out |= set(numbers).difference(values[key])
    asked_for = composed(f"studies/{name}", [list(of) for of in itertools.product(*values.values())], tmp_path)
    figures = dict.fromkeys([one.column for one in planned if one.column], 1.0) | {"step_time_ms": 1.0}
    rows = [
        replace(
            GPU, **requested_fields(config), **figures, effective_mode=config.compile.mode,
            cache_found=config.compile.cache,
        )
        for config in asked_for
    ]  # fmt: skip
    for measured in evaluate_study(study, rows).all_comparisons:
        words = f"{measured.planned.choice} {measured.planned.baseline}".split()
        assert measured.pairs or not left_out.isdisjoint(words), measured.planned


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
    (config,) = composed(f"studies/{name}", jobs(f"studies/{name}", every=False), tmp_path)
    assert (config.job.kind, config.amp.precision) == ("forward", "32-true")
    assert config.model["_target_"].endswith(f".{network}")
    batch_size, data = config.data["batch_size"], config.data
    sizes = {"images": (data["channels"], data["image_size"], data["image_size"]), "tokens": (data["seq_len"],)}
    assert (batch_size, *sizes[config.model["inputs"]]) == shape


def test_choices_of_which_one_says_nothing_more_keep_what_they_share():
    warm = PlannedComparison("compile_time_s", "compile.mode=default cache_found=warm", "compile.mode=default")
    assert pair_label(warm) == "Compile time of default, cache_found=warm over default"


def test_a_dropped_row_still_says_what_the_compiler_did():
    counts = {"num_graphs": 8, "num_graph_breaks": 0, "num_recompiles": 7, "num_eager_steps": 52, "num_steps": 60}
    mixed = {"effective_mode": "mixed", "effective_mode_reason": "recompile limit (8) reached"}
    one = ops_row(1, 2.0, 0, compile_mode="default", **counts, **mixed)
    *_, line = markdown_compiled([one, replace(one, repeat=1)]).splitlines()
    dropped = "requested default, effective mixed: recompile limit (8) reached"
    assert line == f"| model.num\\_ops=1 | 8 | 0 | 7 | 52 | 60 | {dropped} |"
    sides = [replace(one, kind=kind, overrides=["model.rewritten=True"]) for kind in ("train", "forward")]
    *_, trained, called = markdown_compiled(sides).splitlines()
    assert trained.startswith("| kind=train model.rewritten=true | 8 |")
    assert called.startswith("| kind=forward model.rewritten=true | 8 |")


def test_what_was_compiled_again_says_for_what_and_by_which_settings():
    cause = "inputs.size()[0] == 64"
    again = [
        replace(ops_row(n, 2.0, repeat, compile_mode="default"), num_graphs=2, num_recompiles=1, recompiles=[cause])
        for n in (1, 30)
        for repeat in range(2)
    ]
    *_, said = markdown_compiled(again).splitlines()
    assert said.replace("\\", "") == f"Recompiled for {cause}: model.num_ops=1; model.num_ops=30."


def test_groups_over_a_number_are_a_series_and_no_other_groups_are():
    groups = compare(crossing()).groups
    (series,) = series_of(groups)
    assert (series.setting, [number for number, _ in series.groups]) == ("model.num_ops", [1, 10, 30])
    assert series_of(groups[:2]) == []
    deadlines = {"1": 2.0, "10": 10.0, "30": 50.0}
    late = [replace(one, deadline_ms=deadlines[one.overrides[0].partition("=")[2]]) for one in crossing()]
    late = [replace(one, overrides=[f"forward.deadline_ms={one.deadline_ms}", *one.overrides[1:]]) for one in late]
    assert series_of(compare(late).groups) == []
    other = [replace(one, model="other", run_id=f"other-{one.run_id}") for one in crossing()]
    assert [of.condition for of in series_of(compare([*crossing(), *other]).groups)] == ["op_chain", "other"]
    larger = [replace(one, batch_size=2048, run_id=f"larger-{one.run_id}") for one in crossing()]
    two = series_of(compare([*crossing(), *larger]).groups)
    assert [of.condition for of in two] == [f"data.batch_size={crossing()[0].batch_size}", "data.batch_size=2048"]
    called = [replace(one, kind="forward", run_id=f"called-{one.run_id}") for one in crossing()]
    assert [of.condition for of in series_of(compare([*crossing(), *called]).groups)] == ["train", "forward"]
    old = [[replace(row, schema_version=version) for row in crossing()] for version in (1, 2)]
    versions = series_of(compare([*crossing(), *old[0], *old[1]]).groups)
    assert [series.setting for series in versions] == ["model.num_ops"] * 3
    assert [series.condition for series in versions] == ["schema_version=3", "schema_version=1", "schema_version=2"]
    plot = plot_speedups_over(series, looks_of(groups), "p")
    assert plot is not None
    assert dict(plot.keys) == {"default, dynamic=false": "0.60x to 3.50x", "default, dynamic=true": "0.48x to 2.80x"}


def test_times_over_a_number_have_lines_and_turning_points():
    groups = compare(crossing()).groups
    (series,) = series_of(groups)
    plot = plot_times_over(series, looks_of(groups), "p")
    assert plot is not None
    texts = dict(plot.keys)
    assert texts["eager"].startswith("takes 200.20 [")
    assert "us more for each and crosses eager at model.num_ops=5.0 [5.0, 5.0]" in texts["default, dynamic=false"]
    assert "us more for each and crosses eager at model.num_ops=7.5 [7.5, 7.5]" in texts["default, dynamic=true"]
    assert all(text in plot.note for text in texts.values())
    slow = [replace(row, step_time_ms_p50=9.0) if row.compile_dynamic else row for row in crossing()]
    plot = plot_times_over(series_of(compare(slow).groups)[0], looks_of(groups), "p")
    assert plot is not None
    assert dict(plot.keys)["default, dynamic=true"].endswith("does not cross eager within model.num_ops=1 to 30")
    far = [replace(row, overrides=[row.overrides[0] + "00", *row.overrides[1:]]) for row in crossing()[3:]]
    (series,) = series_of(compare([*crossing()[:3], *far]).groups)
    assert plot_times_over(series, looks_of(groups), "p") is None


def test_dynamic_over_static_is_a_ratio_with_its_interval():
    groups = compare(crossing()).groups
    (series,) = series_of(groups)
    plot = plot_dynamic_over(series, looks_of(groups), "p")
    assert plot is not None
    assert plot.keys == (("default, dynamic=true", "1.25x to 1.25x"),)
    (over,) = dynamic_over_static(groups[0].candidates).values()
    assert over.low < 1.25 < over.high
    limited = [replace(row, compile_max_recompiles=None if row.compile_dynamic else 9) for row in crossing()]
    groups = compare(limited).groups
    assert [over.value for over in dynamic_over_static(groups[0].candidates).values()] == pytest.approx([1.25])
    static = [row for row in crossing() if not row.compile_dynamic]
    assert plot_dynamic_over(series_of(compare(static).groups)[0], looks_of(groups), "p") is None


def test_the_command_names_what_has_no_rows(tmp_path: Path):
    done = forked.python(ROOT / "scripts" / "studies.py", tmp_path, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"studies: no rows in {tmp_path} of any study; NAME is one of amp_and_")
    (tmp_path / "000-eager").mkdir()
    (tmp_path / "000-eager" / "row.json").write_text("{}")  # the folder of one study, not the one above it
    assert forked.python(ROOT / "scripts" / "studies.py", tmp_path, cwd=tmp_path).stderr == done.stderr
    assert not list(tmp_path.glob("*.md"))
