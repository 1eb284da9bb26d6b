"""Which settings a race tries: each by itself, then together."""

from trainkit.config.factors import Factor, FactorValue
from trainkit.tuning.batch_sizes import next_batch_size
from trainkit.tuning.combinations import combinations
from trainkit.tuning.space import ArmSettings, Space

MODE = Factor(
    "compile.mode",
    {"default": FactorValue(), "reduce-overhead": FactorValue(inductor=1.2), "max": FactorValue(inductor=10)},
)
SCOPE = Factor("compile.scope", {"net": FactorValue()})
LAYOUT = Factor("trainer.channels_last", {"true": FactorValue()})
SIZE = Factor("data.batch_size", {"auto": FactorValue()}, is_named=True)
BEGINS = {
    "compile.mode": "default", "compile.scope": "step", "trainer.channels_last": "false", "amp": "off",
    "data.batch_size": "64",
}  # fmt: skip
EAGER, DEFAULT = ("compile.mode=eager",), ("compile.mode=default",)


def overrides(arms: list[ArmSettings]) -> list[tuple[str, ...]]:
    return [arm.overrides for arm in arms]


def test_each_value_is_tried_by_itself_eager_and_modes_first_and_what_compiles_long_last():
    space = Space([LAYOUT, MODE, SCOPE], BEGINS)
    assert overrides(space.screening()) == [
        EAGER,
        DEFAULT,
        ("compile.mode=reduce-overhead",),
        ("trainer.channels_last=true", *DEFAULT),
        (*DEFAULT, "compile.scope=net"),
        ("compile.mode=max",),
    ]
    assert [arm.compile_multiple for arm in space.screening()] == [0, 1, 1.2, 1, 1, 10]


def test_the_other_factors_are_tried_in_a_compiled_mode_whatever_the_order_of_the_typed_ones():
    modes = Factor("compile.mode", {"eager": FactorValue(), "reduce-overhead": FactorValue()}, is_named=True)
    space = Space([modes, SCOPE], BEGINS)
    graphs = "compile.mode=reduce-overhead"
    assert overrides(space.screening()) == [EAGER, (graphs,), (graphs, "compile.scope=net")]


def test_the_value_that_a_run_begins_with_is_no_arm_and_the_others_are():
    layout = Factor("trainer.channels_last", {"true": FactorValue(), "false": FactorValue()})
    plain = Space([layout, MODE], BEGINS)
    assert plain.screening() == Space([LAYOUT, MODE], BEGINS).screening()
    begun = Space([layout, MODE], BEGINS | {"trainer.channels_last": "true"})
    layouts = [arm.overrides for arm in begun.screening() if "channels_last" in arm.overrides[0]]
    assert layouts == [("trainer.channels_last=false", *DEFAULT)]


def test_the_compile_time_is_in_multiples_of_that_of_the_value_that_a_run_begins_with_too():
    scope = Factor("compile.scope", {"step": FactorValue(), "blocks": FactorValue(compile=0.5)})
    begun = Space([scope, MODE], BEGINS | {"compile.scope": "blocks"})
    multiples = {arm.overrides: arm.compile_multiple for arm in begun.screening()}
    assert multiples[DEFAULT] == 0.5
    assert multiples["compile.scope=step", *DEFAULT] == 1


def test_the_mode_in_which_other_factors_are_tried_is_known_where_it_is_fixed_too():
    assert Space([MODE], BEGINS).reference_mode == "default"
    assert Space([LAYOUT], BEGINS | {"compile.mode": "reduce-overhead"}).reference_mode == "reduce-overhead"


def test_overrides_that_change_the_training_are_told_from_others():
    amp = Factor("amp", {"off": FactorValue(), "bf16": FactorValue()}, changes_training=True, is_named=True)
    space = Space([amp, SCOPE, MODE], BEGINS)
    assert space.changes_training(("amp=bf16", *DEFAULT, "compile.scope=net")) == ["amp=bf16"]
    assert space.changes_training(()) == []


def test_with_a_fixed_mode_the_race_begins_with_it():
    space = Space([LAYOUT], BEGINS)
    assert overrides(space.screening()) == [(), ("trainer.channels_last=true",)]


def test_named_values_without_the_one_of_the_run_begin_with_the_first():
    amp = Factor("amp", {"bf16": FactorValue(), "fp16": FactorValue()}, is_named=True)
    assert overrides(Space([amp], BEGINS).screening()) == [("amp=bf16",), ("amp=fp16",)]
    amp = Factor("amp", {"off": FactorValue(), "bf16": FactorValue()}, is_named=True)
    assert overrides(Space([amp], BEGINS).screening()) == [(), ("amp=bf16",)]


def test_promising_values_are_combined_and_the_best_expected_comes_first():
    space = Space([LAYOUT, MODE, SCOPE], BEGINS)
    layout, scope = ("trainer.channels_last=true", *DEFAULT), (*DEFAULT, "compile.scope=net")
    figures = {EAGER: 2.0, DEFAULT: 1.0, layout: 0.8, scope: 0.9, ("compile.mode=reduce-overhead",): 0.95}
    crossed = overrides(combinations(space, figures))
    assert crossed == [
        ("trainer.channels_last=true", "compile.mode=reduce-overhead", "compile.scope=net"),
        ("trainer.channels_last=true", *DEFAULT, "compile.scope=net"),
        ("trainer.channels_last=true", "compile.mode=reduce-overhead"),
        ("compile.mode=reduce-overhead", "compile.scope=net"),
    ]


def test_values_that_gain_nothing_are_not_combined():
    space = Space([LAYOUT, MODE], BEGINS)
    figures = {EAGER: 2.0, DEFAULT: 1.0, ("trainer.channels_last=true", *DEFAULT): 0.995}
    assert combinations(space, figures) == []


def test_what_has_no_effect_on_an_eager_run_is_not_combined_with_it():
    space = Space([SCOPE, MODE], BEGINS)
    figures = {EAGER: 0.5, DEFAULT: 1.0, ("compile.scope=net", *DEFAULT): 0.8}
    assert combinations(space, figures) == []


def test_without_the_reference_nothing_is_combined():
    space = Space([LAYOUT, MODE], BEGINS)
    assert combinations(space, {EAGER: 2.0}) == []


def test_with_another_reference_its_values_stand_beside_all_others():
    space = Space([LAYOUT, MODE], BEGINS, other_reference={"trainer.channels_last": "true", "compile.mode": "default"})
    assert overrides(space.screening())[:3] == [
        EAGER,
        ("trainer.channels_last=true", "compile.mode=default"),
        ("trainer.channels_last=true", "compile.mode=reduce-overhead"),
    ]


def test_the_effect_of_a_value_is_over_the_arm_without_it():
    effects = Space([LAYOUT, MODE], BEGINS).effects()
    assert effects[:2] == [
        ("trainer.channels_last=true", ("trainer.channels_last=true", *DEFAULT), DEFAULT),
        ("compile.mode=default", DEFAULT, EAGER),
    ]


def test_the_largest_batch_that_fits_is_found_by_doubling_and_halving():
    fits: dict[int, bool] = {}
    while (size := next_batch_size(64, fits)) is not None:
        fits[size] = size <= 700
    largest = max(size for size, does_fit in fits.items() if does_fit)
    smallest = min(size for size, does_fit in fits.items() if not does_fit)
    assert list(fits)[:4] == [128, 256, 512, 1024]
    assert largest <= 700 < smallest <= 1.25 * largest
    assert all(size % 8 == 0 for size in fits)


def test_a_batch_size_that_was_found_is_combined():
    space = Space([MODE, SIZE], BEGINS)
    sizes = {64 * 2**n: (*DEFAULT, f"data.batch_size={64 * 2**n}") for n in (1, 2)}
    figures = {EAGER: 1.1, DEFAULT: 1.0, sizes[128]: 0.7, sizes[256]: 0.8, ("compile.mode=reduce-overhead",): 0.9}
    assert overrides(combinations(space, figures)) == [("compile.mode=reduce-overhead", "data.batch_size=128")]


def test_a_value_that_needs_another_setting_is_tried_and_combined_with_it():
    strategy = Factor("ddp.strategy", {"fsdp2": FactorValue(together={"compile.scope": "blocks"})})
    scope = Factor("compile.scope", {"blocks": FactorValue()})
    space = Space([strategy, scope, MODE], BEGINS | {"ddp.strategy": "auto"})
    sharded = ("ddp.strategy=fsdp2", "compile.scope=blocks", *DEFAULT)
    blocks = ("compile.scope=blocks", *DEFAULT)
    assert overrides(space.screening()) == [
        EAGER,
        DEFAULT,
        ("compile.mode=reduce-overhead",),
        sharded,
        blocks,
        ("compile.mode=max",),
    ]
    assert ("ddp.strategy=fsdp2", sharded, blocks) in space.effects()
    figures = {EAGER: 2.0, DEFAULT: 1.0, sharded: 0.8, blocks: 1.1, ("compile.mode=reduce-overhead",): 0.9}
    assert ("ddp.strategy=fsdp2", "compile.scope=blocks", "compile.mode=reduce-overhead") in overrides(
        combinations(space, figures)
    )


def test_the_gain_of_a_value_that_another_one_needs_counts_once():
    strategy = Factor("ddp.strategy", {"fsdp2": FactorValue(together={"compile.scope": "blocks"})})
    scope = Factor("compile.scope", {"blocks": FactorValue()})
    space = Space([strategy, scope, LAYOUT, MODE], BEGINS | {"ddp.strategy": "auto"})
    sharded, blocks = ("ddp.strategy=fsdp2", "compile.scope=blocks", *DEFAULT), ("compile.scope=blocks", *DEFAULT)
    layout = ("trainer.channels_last=true", *DEFAULT)
    figures = {EAGER: 2.0, DEFAULT: 1.0, sharded: 0.85, blocks: 0.8, layout: 0.9}
    crossed = overrides(combinations(space, figures))
    both = ("compile.scope=blocks", "trainer.channels_last=true", *DEFAULT)
    assert crossed.index(both) < crossed.index(("ddp.strategy=fsdp2", *both))


def test_values_that_disagree_on_a_setting_are_not_combined():
    strategy = Factor("ddp.strategy", {"fsdp2": FactorValue(together={"compile.scope": "blocks"})})
    scope = Factor("compile.scope", {"net": FactorValue()})
    space = Space([strategy, scope, MODE], BEGINS | {"ddp.strategy": "auto"})
    sharded, net = ("ddp.strategy=fsdp2", "compile.scope=blocks", *DEFAULT), ("compile.scope=net", *DEFAULT)
    figures = {EAGER: 2.0, DEFAULT: 1.0, sharded: 0.85, net: 0.8}
    assert overrides(combinations(space, figures)) == [("ddp.strategy=fsdp2", *EAGER)]  # without the scope


def test_a_first_batch_size_that_does_not_fit_is_halved_until_one_does():
    fits = {64: False}
    while (size := next_batch_size(64, fits)) is not None:
        fits[size] = size <= 13
    assert list(fits) == [64, 32, 16, 8, 12, 14]
    assert next_batch_size(4, {4: False, 2: False, 1: False}) is None
