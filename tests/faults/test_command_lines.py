"""Command lines of any settings with any values compose and run, or are refused in lines that a terminal can show."""

import random
import subprocess
from enum import EnumType
from tempfile import TemporaryDirectory
from typing import get_args

import hypothesis.strategies as st
from hypothesis import given

from tests import forked
from tests.conftest import CONF, ROOT
from tests.faults.campaign import Outcomes, random_seed, tries, tries_within
from tests.faults.rows import problems_of_run
from trainkit.config.complaints import compose_typed
from trainkit.config.errors import ConfigError
from trainkit.config.schema import SETTINGS

NUMBERS = "0", "-1", "1", "2", "0.5", "1e300", "nan", "inf", "-inf", ".inf", "0x10", "9" * 20, "1_000"
WORDS = "null", "true", "''", "a", "eager", "default", "'a b'", '"a\nb"', '"\x1b[31mred"', "${seed}", "${oc.env:HOME}"
NESTED = "[]", "{}", "[-1]", "[[1]]", "{a:1}", "{_target_:nan}", "[" * 40 + "]" * 40, "a,b", "range(3)", "???"
BROKEN = "", "=", "[", "{", "'", '"', "${", "${x}", "\\", "a=b", "\n", "\ud800", "(1)", "%", "--"
HYDRA = "hydra.verbose", "hydra.job.chdir", "hydra.run.dir", "hydra.job.name", "hydra.launcher.timeout_s", "hydra.mode"
GROUPS = sorted({name.partition(".")[0] for name in SETTINGS})
CONFIGS = "config", "bench"

names = st.one_of(
    st.sampled_from(sorted(SETTINGS)),
    st.sampled_from(GROUPS),
    st.sampled_from(["model.dim", "model.width", "data.image_size", "experiment", "nothing", "model.a.b", *HYDRA]),
)
values = st.one_of(*map(st.sampled_from, (NUMBERS, WORDS, NESTED, BROKEN)), st.text(max_size=8))
overrides = st.builds("{}{}={}".format, st.sampled_from(["", "", "", "+", "++", "~"]), names, values)
command_lines = st.lists(st.one_of(overrides, overrides, st.text(max_size=8)), min_size=1, max_size=3)

# Values of real runs, by the type of the setting. None makes a run long.
BY_TYPE = {
    int: ("0", "1", "2", "3", "null", "-1"),
    float: ("0", "0.1", "0.5", "1", "-1", "null", "nan"),
    bool: ("true", "false", "null"),
    str: ("a", "null", "''", "default", "auto", "none"),
}
OTHERS = "null", "[]", "[1]", "{}", "{a:1}", "a", "2"
TINY = (
    "model=mini_transformer", "model.dim=8", "model.depth=1", "data=synthetic", "data.num_batches=2",
    "data.batch_size=4", "trainer.max_epochs=1", "trainer.accelerator=cpu", "compile.mode=eager", "logger=none",
    "hydra.run.dir=run",
)  # fmt: skip

composed = Outcomes("command lines composed")


@tries(limit_min=6, short=12, whole=500)
@given(words=command_lines, name=st.sampled_from(CONFIGS))
def compose_or_refuse(words, name):
    outcome, problems = "composed", []
    try:
        compose_typed(words, CONF, "run", name)
    except ConfigError as error:
        outcome = "refused"
        for complaint in error.complaints:
            if not complaint.isprintable() or "Traceback" in complaint:
                problems.append(f"complaint {complaint!r}")
        if not error.complaints:
            problems.append("no complaint")
    except Exception as error:
        problems.append(f"{type(error).__name__} {error}")
    composed.add(outcome, problems, [name, *words])


def test_a_command_line_composes_or_is_refused_in_lines():
    compose_or_refuse()
    assert composed.counts["refused"] > 0
    composed.close()


def random_words(chance: random.Random) -> list[str]:
    """One or two overrides of a tiny run."""
    words = []
    settings = [declared for declared in SETTINGS.values() if not declared.is_group]
    for declared in chance.sample(settings, chance.randint(1, 2)):
        values = OTHERS
        for part in get_args(declared.annotation) or (declared.annotation,):
            if part in BY_TYPE:
                values = BY_TYPE[part]
            elif isinstance(part, EnumType):
                values = tuple(member.name for member in part)
        words.append(f"{declared.name}={chance.choice(values)}")
    return words


def test_a_command_line_runs_or_is_refused_in_lines():
    chance = random.Random(random_seed())
    outcomes = Outcomes("command lines run")
    for _ in tries_within(limit_min=6, short=4, whole=100):
        words = random_words(chance)
        with TemporaryDirectory() as folder:
            try:
                ended = forked.python(ROOT / "train.py", *TINY, *words, cwd=folder, timeout_s=60)
            except subprocess.TimeoutExpired:
                outcomes.add("hang", ["ran for 60 s"], words)
                continue
            outcomes.add(f"exit {ended.returncode}", problems_of_run(ended, folder), words)
    outcomes.close()
