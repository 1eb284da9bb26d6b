"""A hook of mkdocs: links that lead out of docs/, which GitHub follows, are plain text on the site.

A link whose file is not in the repository fails the build, as a link inside of docs/ does.
"""

import re
from pathlib import Path
from typing import Any

from mkdocs.exceptions import PluginError

DOCS = Path(__file__).parent
LINK = re.compile(r"(?<!!)\[([^\]]+)\]\(((?:\.\./)+[^)#\s]*)(#[^)\s]*)?\)")


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    folder = (DOCS / page.file.src_uri).parent

    def replaced(link: re.Match[str]) -> str:
        target = (folder / link[2]).resolve()
        if target.is_relative_to(DOCS) and target.is_file():
            return link[0]
        if not target.exists():
            raise PluginError(f"{page.file.src_uri}: {link[2]} is not in the repository")
        return link[1]

    return LINK.sub(replaced, markdown)
