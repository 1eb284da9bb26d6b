"""What a release must agree in."""

from omegaconf import OmegaConf

import trainkit
from tests.conftest import ROOT


def test_the_citation_names_the_version():
    assert OmegaConf.load(ROOT / "CITATION.cff").version == trainkit.__version__


def test_the_changelog_begins_with_what_is_not_released_yet():
    headings = [line for line in (ROOT / "CHANGELOG.md").read_text().splitlines() if line.startswith("## ")]
    assert headings[0] == "## [Unreleased]"
