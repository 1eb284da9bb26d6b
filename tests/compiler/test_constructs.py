"""What torch.compile makes of each construct is what measurements/constructs.yaml, the claims and the guide say."""

import re

import pytest
import torch
from omegaconf import OmegaConf

from tests import forked
from tests.conftest import ROOT
from trainkit.compiler.constructs import construct_named
from trainkit.compiler.outcomes import SAME, compiled_outcome, trained_outcome
from trainkit.report.rewrites import read_constructs, with_tables, write_constructs

OUTCOMES = ROOT / "measurements" / "constructs.yaml"
CONSTRUCTS = {construct.name: construct for construct in read_constructs(OUTCOMES)}
OPERATORS = [name for name, construct in CONSTRUCTS.items() if construct.same_as]
COMMAND = "python scripts/constructs.py "
CLAIMS = OmegaConf.to_container(OmegaConf.load(ROOT / "measurements" / "claims.yaml"))
SHOWN = {claim["command"].removeprefix(COMMAND): claim for claim in CLAIMS if COMMAND in claim.get("command", "")}
VERSION = ".".join(torch.__version__.split(".")[:2])
recorded = pytest.mark.skipif(VERSION not in CONSTRUCTS["cond"].outcomes, reason=f"no outcomes of torch {VERSION}")


@recorded
@pytest.mark.parametrize("name", CONSTRUCTS)
def test_torch_makes_of_a_construct_what_is_recorded(name):
    assert compiled_outcome(name) == CONSTRUCTS[name].outcomes[VERSION]


@recorded
@pytest.mark.parametrize("name", OPERATORS)
def test_a_rewrite_has_the_gradients_of_the_plain_construct_where_the_record_says_so(name):
    construct = CONSTRUCTS[name]
    assert trained_outcome(name, construct.same_as) == construct.gradients[VERSION]


@pytest.mark.parametrize("name", [name for name in OPERATORS if CONSTRUCTS[name].gradients["2.13"].startswith(SAME)])
def test_a_rewrite_computes_what_the_plain_construct_computes(name):
    for scale in (-1.0, 0.3, 1.0):
        x = scale * torch.linspace(-1, 1.2, 16).view(4, 4)
        torch.testing.assert_close(construct_named(name)(x), construct_named(CONSTRUCTS[name].same_as)(x))


@pytest.mark.parametrize("name", SHOWN)
def test_a_claim_about_a_construct_is_judged_by_its_outcomes(name):
    claim, outcomes = SHOWN[name], CONSTRUCTS[name].outcomes
    (outcome,) = set(outcomes.values())
    broken = outcome != "one graph"
    assert claim["measured"] == f"{'a graph break' if broken else 'one graph'}, torch {' and '.join(outcomes)}"
    claimed_broken = re.search("breaks the graph", claim["claim"]) is not None
    assert claim["verdict"] == ("held" if broken == claimed_broken else "did not hold")


def test_an_unknown_construct_is_one_line(tmp_path):
    done = forked.python(ROOT / "scripts" / "constructs.py", "list_bilding", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("list_bilding: no such construct; one of list_building, ")


def test_the_script_prints_outcomes(tmp_path):
    done = forked.python(ROOT / "scripts" / "constructs.py", "print_call", "where", cwd=tmp_path)
    assert done.stdout == "print_call: breaks\nwhere: one graph; same gradients (beside tensor_branch)\n"


def test_the_tables_of_the_guide_are_made_of_the_outcomes_and_the_rows():
    page = (ROOT / "docs" / "guide" / "rewrites.md").read_text(encoding="utf-8")
    assert with_tables(page, list(CONSTRUCTS.values()), ROOT / "measurements") == page


def test_the_record_is_written_as_it_is_read(tmp_path):
    write_constructs(tmp_path / "constructs.yaml", list(CONSTRUCTS.values()))
    assert read_constructs(tmp_path / "constructs.yaml") == list(CONSTRUCTS.values())
