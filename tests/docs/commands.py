"""The commands of the README and of the guides, as their pages have them."""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.conftest import ROOT

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs" / "guide").glob("*.md"))]
# A block is indented, or fenced without a language; a comment above it says what it needs.
BLOCK = re.compile(r"(?m)(?:^<!-- (\w+) -->\n+)?(?:^```\n((?s:.*?))^```$|((?:^    .*\n|^\n(?=    \S))+))")
PROGRAM = re.compile(r"(python|torchrun|trainkit|make|pip|docker) \S")
SCRIPT = r"(?:python |torchrun .*?)(?:train\.py|scripts/(?:bench|diagnose)\.py)"
ENTRY = re.compile(rf"{SCRIPT}|trainkit (?:train|bench|diagnose)")


@dataclass(frozen=True)
class Command:
    """A line of a page's shell blocks, without its comment. `needs` is what the page says that it needs: `gpu`, or
    `cluster` for several GPUs or hosts, which no test has."""

    line: str
    needs: str | None

    @property
    def overrides(self) -> list[str] | None:
        """The words behind train.py, bench.py or diagnose.py; None of another command."""
        entry = ENTRY.match(self.line)
        return None if entry is None else shlex.split(self.line[entry.end() :])

    @property
    def is_forward(self) -> bool:
        return "bench" in self.line.split(" model=")[0]


def commands(page: Path) -> Iterator[Command]:
    for needs, fenced, indented in BLOCK.findall(page.read_text(encoding="utf-8")):
        text = re.sub(r"\\\n\s*", "", fenced or indented)
        for line in text.splitlines():
            if PROGRAM.match(line.strip()):
                yield Command(re.split(r"\s+(?:# |&$)", line.strip())[0], needs or None)
