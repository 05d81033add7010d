"""Make links of pages to files outside docs/ into text, for the site: it has no such files.

On a code host `[claim.lua](../src/duly/_lua/claim.lua)` leads to the file. The site shows the text, and the path where
the text does not say it already. Links between pages, and blocks of code, stay as they are. mkdocs.yml names this hook.
"""

import posixpath
import re
from typing import Any
from urllib.parse import unquote

LINK = re.compile(r"(?<!!)\[((?:[^\[\]]|\[[^\[\]]*\])*)\]\(([^)\s]+)\)")
FENCE = re.compile(r"^ {0,3}(```+|~~~+)")


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Be called by mkdocs with the text of each page."""
    return without_outer_links(markdown, page.file.src_uri)


def without_outer_links(markdown: str, page: str) -> str:
    """Return the text of `page`, a path below docs/, without links that leave docs/."""
    lines, fence = [], ""
    for line in markdown.split("\n"):
        mark = FENCE.match(line)
        is_code = bool(fence or mark)
        if mark and not fence:
            fence = mark[1]
        elif mark and line.strip() == mark[1] and mark[1].startswith(fence):
            fence = ""
        lines.append(line if is_code else LINK.sub(lambda link: _shown(link, page), line))
    return "\n".join(lines)


def _shown(link: re.Match[str], page: str) -> str:
    text, target = link[1], link[2]
    path = _outside(target, page)
    if path is None:
        return link[0]
    if posixpath.basename(path) in text:
        return text
    return f"{text} (`{path}`)"


def _outside(target: str, page: str) -> str | None:
    """Return the path from the root of the repository if a link leads out of docs/."""
    if re.match(r"[a-z]+:", target) or target.startswith(("#", "/")):
        return None
    path = unquote(target).partition("#")[0]
    from_docs = posixpath.normpath(posixpath.join(posixpath.dirname(page), path))
    return from_docs.removeprefix("../") if from_docs.startswith("../") else None
