"""Count phrases that `CONTRIBUTING.md` asks to avoid in code, tests and pages, and compare with ceilings.

Only prose is searched: comments, docstrings, texts and names of tests in Python; comments and texts of Lua; the words
of templates; pages without their code blocks. Other identifiers, code between backquotes, addresses of links, texts
without a space, such as keys, and names of audit faults, which are public codes, are not prose.

`check_words.py` prints a table and fails if a part is above its ceiling: a package, a folder of tests or tools, the
examples, or a page. Parts without phrases are not in the table. `check_words.py PART...` lists each phrase with its
place. After a rewrite, lower the ceiling in `CEILINGS`.
"""

import ast
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple, TypeGuard

from duly._core.faults import FAULTS

ROOT: Final = Path(__file__).parent.parent
SOURCE: Final = ROOT / "src/duly"
TESTS: Final = ROOT / "tests"
EXAMPLES: Final = ROOT / "examples"
TOOLS: Final = ROOT / "tools"
BENCHMARKS: Final = ROOT / "benchmarks"
DOCS: Final = ROOT / "docs"
SKIPPED: Final = (
    SOURCE / "_sync",
    TESTS / "client/_sync",
    DOCS / "conformance.md",
    DOCS / "zh",
    ROOT / "README.zh-CN.md",
    BENCHMARKS / "peers/.venvs",
    TOOLS / "node_modules",
)
"""Generated files, the Chinese pages, and packages."""
SAMPLES: Final = (TESTS / "unit/test_check_words.py", Path(__file__))
"""Their texts have the phrases on purpose."""

CEILINGS: Final[Mapping[str, int]] = {}
"""The highest count of each part, 0 unless listed. It is only lowered."""

_VERBS: Final = (
    "is|are|was|were|isn't|has|had|can|cannot|could|may|might|must|will|would|should|does|did|"
    "belongs|came|comes|counts|differs|ends|fails|failed|follows|goes|went|grows|holds|keeps|lacks|makes|matters|"
    "means|needs|remains|runs|stands|stays|stops|takes|waits|waited|works"
)
PHRASES: Final[Mapping[str, str]] = {
    # A question is idiomatic, and so is "what happens".
    "what is": rf"(?:(?:^|(?<=[.:;] ))(?:What|Who)|\b[Ww]hat (?:{_VERBS}))\b(?![^.]*\?)",
    "somebody": r"\b(?:some|no|any|every)body\b",
    "say": r"\b(?:say|says|said|saying)\b",
    "tell": r"\b(?:tell|tells|told|telling)\b",
    "whoever": r"\b(?:who|what|whom)ever\b",
    "of its own": r"\bof (?:its|his|her|their|your|our|my|one's) own\b|\bof (?:yours|ours|theirs)\b",
    "look": r"\blook(?:s|ed|ing)?\b(?![ -](?:ahead|like|up)\b)",
    "hand out": r"\bhand(?:s|ed|ing)?(?: \w+){0,2} out\b",
    "is no": r"(?<!\bthere )\b(?:is|are|was|were) no (?!(?:longer|more|less|later|earlier|other|one|such)\b)\w",
    "too": r", too(?=[.,:;!?)]|$)|\balso (?:when|if|while|where)\b",
    "so many": r"\bso (?:many|long|often)\b(?! that\b)",
    "anew": r"\banew\b",
    "mend": r"\bmend(?:s|ed|ing)?\b",
    "beside": r"\bbeside\b",
    "for ever": r"\bfor ever\b",
    "in vain": r"\bin vain\b",
    "itself": r"\bby (?:it|him|them)sel(?:f|ves)\b",
    "meanwhile": r"\bmeanwhile\b",
    "he": r"\b(?:he|him|his|himself)\b",
}
"""Regular expressions by the name of their column."""
_COMPILED: Final = {
    name: re.compile(phrase, 0 if name == "what is" else re.IGNORECASE) for name, phrase in PHRASES.items()
}
_FAULTS: Final = sorted((part.strip() for fault in FAULTS for part in fault.what.split("*") if part), key=len)
_CODE: Final = re.compile("|".join(["`[^`]*`", *(re.escape(part) for part in reversed(_FAULTS) if " " in part)]))
"""Code between backquotes, and the fixed parts of the names of audit faults."""
_LUA_PROSE: Final = re.compile(
    r"--\[\[(.*?)\]\]|((?:^[ ]*--[^\n]*\n)+|--[^\n]*)|\"([^\"\n]*)\"|'([^'\n]*)'", re.DOTALL | re.MULTILINE
)
_FENCED: Final = re.compile(r"^( *)(```+)[^\n]*\n.*?^\1\2 *$", re.DOTALL | re.MULTILINE)
_ADDRESS: Final = re.compile(r"(?<=\])\([^)\s]*\)")
_BEGINS_BLOCK: Final = re.compile(r"\s*(?:$|[#|]|[-*] |\d+\. )")
"""An empty line, a heading, a row of a table, or an item of a list."""
_MARKUP: Final = re.compile(r"<(?:script|style).*?</(?:script|style)>|<[^>]*>|\{%.*?%\}|\{\{.*?\}\}", re.DOTALL)


Text = ast.Constant | ast.JoinedStr


class Prose(NamedTuple):
    """A piece of prose, and the number of its first line."""

    text: str
    line: int


class Hit(NamedTuple):
    """A phrase to avoid."""

    name: str
    text: str
    line: int


def hits_in(prose: Prose) -> Iterator[Hit]:
    """Find the phrases in a piece of prose."""
    words = [(word, number) for number, line in enumerate(prose.text.splitlines()) for word in line.split()]
    text = _CODE.sub(lambda code: re.sub(r"\w", "x", code[0]), " ".join(word for word, _ in words))
    for name, phrase in _COMPILED.items():
        for match in phrase.finditer(text):
            yield Hit(name, match[0], prose.line + words[text.count(" ", 0, match.start())][1])


def prose_of_python(source: str) -> Iterator[Prose]:
    """Return the comments, texts and names of tests of a Python file."""
    tree = ast.parse(source)
    nodes = [node for node in ast.walk(tree) if _is_text(node)]
    parts = {id(part) for node in nodes if isinstance(node, ast.JoinedStr) for part in node.values}
    yield from _comments(source, nodes)
    yield from _test_names(tree)
    for node in nodes:
        text = _joined(node)
        if id(node) not in parts and " " in text.strip():
            yield Prose(text, node.lineno)


def _is_text(node: ast.AST) -> TypeGuard[Text]:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))


def _comments(source: str, texts: list[Text]) -> Iterator[Prose]:
    """Return comments. Comments on consecutive lines are one, so that a phrase may continue on the next line.

    A comment begins at a `#` that is not in a text. This takes a fifth of the time of `tokenize`.
    """
    spans = [((node.lineno, node.col_offset), (node.end_lineno or 0, node.end_col_offset or 0)) for node in texts]
    block: list[str] = []
    for number, line in enumerate(source.encode().split(b"\n"), 1):
        columns = (match.start() for match in re.finditer(b"#", line))
        column = next((at for at in columns if not any(begin <= (number, at) < end for begin, end in spans)), None)
        if column is not None:
            block.append(line[column:].decode().lstrip("#: "))
        elif block:
            yield Prose("\n".join(block), number - len(block))
            block = []


def _test_names(tree: ast.AST) -> Iterator[Prose]:
    """Return the names of tests as sentences: a name states the fact that the test checks."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            yield Prose(node.name.removeprefix("test_").replace("_", " ").capitalize() + ".", node.lineno)


def _joined(node: Text) -> str:
    """Return the text of a literal, with `x` for each value of an f-string."""
    if isinstance(node, ast.Constant):
        return str(node.value)
    return "".join(str(part.value) if isinstance(part, ast.Constant) else "x" for part in node.values)


def prose_of_lua(source: str) -> Iterator[Prose]:
    """Return the comments and texts of a Lua file."""
    for match in _LUA_PROSE.finditer(source):
        block, lines, *texts = match.groups()
        text = block or (re.sub(r"^ *-- ?", "", lines, flags=re.MULTILINE) if lines else next(filter(None, texts), ""))
        if " " in text.strip():
            yield Prose(text, source.count("\n", 0, match.start()) + 1)


def prose_of_template(source: str) -> Iterator[Prose]:
    """Return the words of a template, without tags and expressions."""
    yield Prose(_MARKUP.sub(lambda markup: "\n" * markup[0].count("\n") or " ", source), 1)


def prose_of_page(source: str) -> Iterator[Prose]:
    """Return the paragraphs, items, rows and headings of a page, without code blocks and addresses of links."""
    text = _ADDRESS.sub("", _FENCED.sub(lambda block: "\n" * block[0].count("\n"), source))
    block: list[str] = []
    for number, line in enumerate([*text.split("\n"), ""], 1):
        if block and _BEGINS_BLOCK.match(line):
            yield Prose("\n".join(block).lstrip("#-*|0123456789. "), number - len(block))
            block = []
        if line.strip():
            block.append(line)


READERS: Final = {
    ".py": prose_of_python,
    ".lua": prose_of_lua,
    ".html": prose_of_template,
    ".md": prose_of_page,
}


def part_of(path: Path) -> str:
    """Name the package, the folder of tests, or the page."""
    if DOCS in path.parents or path.parent == ROOT:
        return path.relative_to(ROOT).as_posix()
    for folder in (EXAMPLES, TOOLS, BENCHMARKS):
        if folder in path.parents:
            return folder.name
    if TESTS in path.parents:
        return "/".join(path.relative_to(ROOT).parts[:2]) if path.parent != TESTS else "tests"
    parts = path.relative_to(SOURCE).parts
    return parts[0] if len(parts) > 1 else "duly"


def hits_by_file() -> Iterator[tuple[Path, list[Hit]]]:
    """Search every file that is written by hand."""
    folders = (SOURCE, TESTS, EXAMPLES, TOOLS, BENCHMARKS, DOCS)
    for path in sorted([*ROOT.glob("*.md"), *(path for folder in folders for path in folder.rglob("*"))]):
        if path.suffix in READERS and path not in SAMPLES and not set(SKIPPED) & {path, *path.parents}:
            yield path, [hit for prose in READERS[path.suffix](path.read_text()) for hit in hits_in(prose)]


def print_hits(parts: Iterable[str]) -> None:
    """List each phrase of some parts with its place."""
    wanted = set(parts)
    for path, hits in hits_by_file():
        if part_of(path) in wanted:
            for hit in sorted(hits, key=lambda each: each.line):
                print(f"{path.relative_to(ROOT)}:{hit.line}: {hit.name}: {hit.text}")


def count() -> dict[str, Counter[str]]:
    """Count the phrases of each part."""
    counts: dict[str, Counter[str]] = {}
    for path, hits in hits_by_file():
        counts.setdefault(part_of(path), Counter()).update(hit.name for hit in hits)
    return counts


def table(counts: Mapping[str, Counter[str]]) -> str:
    """Write the counts, one row for each part that has phrases or may have them."""
    names = list(PHRASES)
    rows = [["part", *names, "sum", "ceiling"]]
    for part, found in sorted(counts.items()):
        if found.total() or ceiling(part):
            rows.append([part, *(str(found[name] or "") for name in names), str(found.total()), str(ceiling(part))])
    everything = sum(counts.values(), Counter[str]())
    limits = sum(map(ceiling, counts))
    rows.append(["all", *(str(everything[name] or "") for name in names), str(everything.total()), str(limits)])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(
            [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]
        )
        for row in rows
    )


def ceiling(part: str) -> int:
    """Return the highest count that a part may have. A new package or page has none of the phrases."""
    return CEILINGS.get(part, 0)


def above(counts: Mapping[str, Counter[str]]) -> list[str]:
    """Describe the parts that are above their ceilings."""
    return [
        f"{part}: {found.total()} phrases, {ceiling(part)} allowed; tools/check_words.py {part} lists them"
        for part, found in sorted(counts.items())
        if found.total() > ceiling(part)
    ]


def main(parts: list[str]) -> int:
    """Print the table, or the phrases of parts; return the exit status."""
    if parts:
        print_hits(parts)
        return 0
    counts = count()
    print(table(counts))
    problems = above(counts)
    for problem in problems:
        print(problem, file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
