"""Give the site pages for files outside docs/, and make each link lead to such a page, or to the file's repository.

On a code host `[claim.lua](../src/duly/_lua/claim.lua)` leads to the file, and so it does on the site: by the address
of the repository. Changelog, examples and the pages for contributors are pages of the site. mkdocs.yml names this hook.
"""

import posixpath
import re
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

ROOT: Final = Path(__file__).parents[1]
PROJECT_PAGES: Final = {
    "CHANGELOG.md": "project/changelog.md",
    "CODE_OF_CONDUCT.md": "project/code-of-conduct.md",
    "CONTRIBUTING.md": "project/contributing.md",
    "SECURITY.md": "project/security.md",
    "benchmarks/README.md": "project/benchmarks.md",
    "examples/README.md": "examples/index.md",
}
"""Files outside docs/, and the page of the site that each one becomes."""
EXCLUDED: Final = ("mission.md", "conformance.md")
"""Pages of docs/ that are not in the site: mkdocs.yml."""
LOGO: Final = ("src/duly/web/static/icon.svg", "images/icon.svg")
"""The logo of the dashboard, and where the site has it."""
LANGUAGES: Final = {".py": "python", ".mjs": "js"}

LINK = re.compile(r"(?<!!)\[((?:[^\[\]]|\[[^\[\]]*\])*)\]\(([^)\s]+)\)")
FENCE = re.compile(r"^ {0,3}(```+|~~~+)")


def outer_pages() -> dict[str, str]:
    """Return the path of each file outside docs/ that is a page of the site, with the path of the page."""
    examples = {
        f"examples/{path.name}": f"examples/{path.stem}-{path.suffix[1:]}.md"
        for path in sorted((ROOT / "examples").iterdir())
        if path.suffix in LANGUAGES
    }
    return {path: page for path, page in PROJECT_PAGES.items() if (ROOT / path).exists()} | examples


def on_files(files: Any, config: Any, **_: Any) -> Any:
    """Be called by mkdocs with the files of docs/, and add those from elsewhere."""
    from mkdocs.structure.files import File

    for path, page in outer_pages().items():
        files.append(File.generated(config, page, content=page_text(path)))
    logo, place = LOGO
    files.append(File.generated(config, place, abs_src_path=str(ROOT / logo)))
    return files


def page_text(path: str) -> str:
    """Return the Markdown of a file outside docs/. An example is a page with its code."""
    text = (ROOT / path).read_text(encoding="utf-8")
    language = LANGUAGES.get(posixpath.splitext(path)[1])
    if not language:
        return text
    name = posixpath.basename(path)
    return f"# {name}\n\n````{language}\n{text}````\n"


def on_page_markdown(markdown: str, page: Any, config: Any, **_: Any) -> str:
    """Be called by mkdocs with the text of each page."""
    return with_reachable_links(markdown, page.file.src_uri, config.repo_url)


def with_reachable_links(markdown: str, page: str, repository: str) -> str:
    """Return the text of `page`, a path of the site, with links that work there. Blocks of code stay as they are."""
    source = {target: path for path, target in outer_pages().items()}.get(page, f"docs/{page}")

    def shown(link: re.Match[str]) -> str:
        return f"[{link[1]}]({_target(link[2], source, page, repository)})"

    lines, fence = [], ""
    for line in markdown.split("\n"):
        mark = FENCE.match(line)
        is_code = bool(fence or mark)
        if mark and not fence:
            fence = mark[1]
        elif mark and line.strip() == mark[1] and mark[1].startswith(fence):
            fence = ""
        lines.append(line if is_code else LINK.sub(shown, line))
    return "\n".join(lines)


def _target(target: str, source: str, page: str, repository: str) -> str:
    """Return where a link of the file `source` leads on `page`."""
    if re.match(r"[a-z]+:", target) or target.startswith(("#", "/")):
        return target
    path, hash_, anchor = unquote(target).partition("#")
    path = posixpath.normpath(posixpath.join(posixpath.dirname(source), path))
    below_docs = path.removeprefix("docs/")
    if path in outer_pages():
        below_docs = outer_pages()[path]
    elif below_docs == path or below_docs in EXCLUDED:
        return f"{repository}/blob/HEAD/{path}{hash_}{anchor}"
    return posixpath.relpath(below_docs, posixpath.dirname(page) or ".") + hash_ + anchor
