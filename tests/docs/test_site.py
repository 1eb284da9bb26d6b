"""The site of docs/ shows what the pages say, as GitHub does."""

import re

import markdown
import yaml

from tests.conftest import ROOT


def test_a_study_has_its_folded_tables_and_nested_lists_on_the_site():
    extensions = re.search(r"(?m)^markdown_extensions: (.*)$", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"))[1]
    page = (ROOT / "docs" / "studies" / "modes.md").read_text(encoding="utf-8")
    html = markdown.markdown(page, extensions=yaml.safe_load(extensions))
    folded = re.findall(r"<details>.*?</details>", html, re.DOTALL)
    assert len(folded) == page.count("<details")
    assert sum(section.count("<table>") for section in folded) == len(re.findall(r"(?m)^\| :--", page))
    assert "<li>Speed of reduce-overhead over default:<ul>" in re.sub(r"\s*\n\s*", "", html)
    assert "| :--" not in html
    assert "**" not in html
