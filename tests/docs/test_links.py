"""The links of the pages outside of docs/, which the build of the site does not see."""

import re

import pytest

from tests.conftest import ROOT


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md", "SECURITY.md"])
def test_each_link_leads_to_a_file(name):
    text = re.sub(r"(?ms)^```.*?^```$", "", (ROOT / name).read_text(encoding="utf-8"))
    targets = re.findall(r"\]\(((?!https?:)[^)#\s]+)", text)
    assert [target for target in targets if not (ROOT / target).exists()] == []
