"""Command lines of any settings with any values compose, or are refused in lines that a terminal can show."""

from collections import Counter

import hypothesis.strategies as st
from hypothesis import given

from tests.conftest import CONF
from tests.faults.campaign import count, tries
from trainkit.config.complaints import compose_typed
from trainkit.config.errors import ConfigError
from trainkit.config.schema import SETTINGS

NUMBERS = "0", "-1", "1", "2", "0.5", "1e300", "nan", "inf", "-inf", ".inf", "0x10", "9" * 20, "1_000"
WORDS = "null", "true", "''", "a", "eager", "default", "'a b'", '"a\nb"', '"\x1b[31mred"', "${seed}", "${oc.env:HOME}"
NESTED = "[]", "{}", "[-1]", "[[1]]", "{a:1}", "{_target_:nan}", "[" * 40 + "]" * 40, "a,b", "range(3)", "???"
BROKEN = "", "=", "[", "{", "'", '"', "${", "${x}", "\\", "a=b", "\n", "\ud800", "(1)", "%", "--"
HYDRA = "hydra.verbose", "hydra.job.chdir", "hydra.run.dir", "hydra.job.name", "hydra.launcher.timeout_s", "hydra.mode"

names = st.one_of(
    st.sampled_from(sorted(SETTINGS)),
    st.sampled_from(sorted({name.partition(".")[0] for name in SETTINGS})),
    st.sampled_from(["model.dim", "model.width", "data.image_size", "experiment", "nothing", "model.a.b", *HYDRA]),
)
values = st.one_of(*map(st.sampled_from, (NUMBERS, WORDS, NESTED, BROKEN)), st.text(max_size=8))
overrides = st.builds("{}{}={}".format, st.sampled_from(["", "", "", "+", "++", "~"]), names, values)
command_lines = st.lists(st.one_of(overrides, overrides, st.text(max_size=8)), min_size=1, max_size=3)
outcomes: Counter[str] = Counter()


@tries(short=20, whole=500)
@given(words=command_lines)
def compose_or_refuse(words):
    complaints: tuple[str, ...] = ()
    outcome = "composed"
    try:
        compose_typed(words, CONF, run_dir="run")
    except ConfigError as error:
        complaints, outcome = error.complaints, "refused"
    assert bool(complaints) == (outcome == "refused")
    for complaint in complaints:
        assert complaint.isprintable(), complaint
        assert "Traceback" not in complaint
    outcomes[outcome] += 1


def test_a_command_line_composes_or_is_refused_in_lines():
    compose_or_refuse()
    count("command lines", outcomes.total(), **outcomes)
    assert outcomes["refused"] > 0
