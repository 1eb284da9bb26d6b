"""The colours of settings in plots."""

from tests.sweeps import ops_row
from trainkit.analysis.comparison import compare
from trainkit.report.plots.palette import HUES, INK, MODES, looks_of


def colors_of(*settings: dict) -> dict[str, str]:
    """The colour of each label, of eager and of these settings."""
    rows = [ops_row(1, 2.0, repeat, compile_mode="eager") for repeat in range(2)]
    for setting in settings:
        rows += [ops_row(1, 1.0, repeat, **setting) for repeat in range(2)]
    looks = looks_of(compare(rows).groups)
    return {label: look.color for label, look in looks.items()}


def test_the_only_label_of_a_mode_has_its_hue_and_several_have_others():
    default, graphs = {"compile_mode": "default"}, {"compile_mode": "reduce-overhead"}
    hue = HUES[MODES.index("default")]
    assert colors_of(default | {"compile_dynamic": True}, graphs) == {
        "eager": INK,
        "default, dynamic=true": hue,
        "reduce-overhead, dynamic=null": HUES[MODES.index("reduce-overhead")],
    }
    several = colors_of(default | {"compile_dynamic": True}, default | {"compile_dynamic": False})
    assert len(several) == 3
    assert hue not in several.values()
