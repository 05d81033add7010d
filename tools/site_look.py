"""Add to pages of the site what their text lacks: search options, description, language, and the head of the home.

The pages in docs/ stay plain Markdown, as a code host shows them. mkdocs.yml names this hook.
"""

import re
from typing import Any, Final

UNSEARCHED: Final = ("decisions/", "internals.md", "protocol.md", "project/", "examples/")
"""Pages that would hide those for users from the search."""
BOOSTED: Final = {
    "tutorial.md": 4.0,
    "guide.md": 3.0,
    "sending.md": 3.0,
    "receiving.md": 3.0,
    "retries.md": 3.0,
    "workers.md": 3.0,
    "inspecting.md": 2.0,
    "dead-letters.md": 3.0,
    "deployment.md": 2.0,
    "faq.md": 2.0,
    "troubleshooting.md": 2.0,
    "celery.md": 3.0,
    "migration/celery.md": 3.0,
    "glossary.md": 2.0,
}
HOMES: Final = ("index.md", "zh/index.md")
LONGEST: Final = 160
"""Characters of a description."""
CHINESE: Final = {
    '<html lang="en"': '<html lang="zh"',
    'placeholder="Search"': 'placeholder="搜索"',
    'aria-label="Search"': 'aria-label="搜索"',
    'title="Clear" aria-label="Clear"': 'title="清空" aria-label="清空"',
    'aria-label="Header"': 'aria-label="页眉"',
    'aria-label="Tabs"': 'aria-label="标签"',
    'aria-label="Navigation"': 'aria-label="导航"',
    'aria-label="Footer"': 'aria-label="页脚"',
    'aria-label="Previous: ': 'aria-label="上一页: ',
    'aria-label="Next: ': 'aria-label="下一页: ',
    'aria-label="Dark"': 'aria-label="深色"',
    'aria-label="Light"': 'aria-label="浅色"',
    'title="Dark"': 'title="深色"',
    'title="Light"': 'title="浅色"',
    'title="Go to repository"': 'title="前往仓库"',
    'title="Permanent link"': 'title="永久链接"',
    "Table of contents": "目录",
    "Back to top": "回到页面顶部",
    "Skip to content": "跳到正文",
    "Initializing search": "正在加载搜索",
    # the script of the theme shows these
    '"Copy to clipboard"': '"复制"',
    '"Copied to clipboard"': '"已复制"',
    '"Type to start searching"': '"输入以开始搜索"',
    '"No matching documents"': '"没有匹配的页面"',
    '"1 matching document"': '"1 个匹配的页面"',
    '"# matching documents"': '"# 个匹配的页面"',
    '"1 more on this page"': '"本页还有 1 处"',
    '"# more on this page"': '"本页还有 # 处"',
    '"search.result.term.missing": "Missing"': '"search.result.term.missing": "缺少"',
}
DIRECTION: Final = re.compile(r'(md-footer__direction">\s*)(Previous|Next)')
DIRECTIONS: Final = {"Previous": "上一页", "Next": "下一页"}
ANCHOR_LIST: Final = re.compile(r"\A\s*(?:\[[^\]]+\]\(#[^)]+\)\s*·?\s*){3,}\Z")


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Be called by mkdocs with the text of each page."""
    name = page.file.src_uri
    page.meta["search"] = search_options(name)
    if description := described(markdown):
        page.meta["description"] = description
    if name in HOMES:
        page.meta["hide"] = ["navigation", "toc"]
        page.meta["title"] = "Duly"
    return without_anchor_list(markdown)


def search_options(page: str) -> dict[str, Any]:
    """Return how the search treats a page."""
    if page.removeprefix("zh/").startswith(UNSEARCHED):
        return {"exclude": True}
    return {"boost": BOOSTED.get(page.removeprefix("zh/"), 1.0)}


def described(markdown: str) -> str:
    """Return the first sentences of a page as plain text: a search engine shows them."""
    for paragraph in re.split(r"\n\s*\n", markdown):
        text = paragraph.strip()
        if not text or text.startswith(("#", "|", "`", "!", ":::", "<", "-", "{")) or ANCHOR_LIST.match(text):
            continue
        plain = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", text)
        plain = re.sub(r"[*`_]", "", " ".join(plain.split()))
        # Chinese text has few spaces: any mark between two words will do
        return plain if len(plain) <= LONGEST else re.sub(r"\W+\w*\Z", "", plain[:LONGEST]) + " …"
    return ""


def without_anchor_list(markdown: str) -> str:
    """Leave out the list of a page's own headings: the site shows it next to the text."""
    parts = re.split(r"(\n\s*\n)", markdown)
    return "".join(part for part in parts if not ANCHOR_LIST.match(part))


def on_page_context(context: Any, page: Any, nav: Any, **_: Any) -> Any:
    """Be called by mkdocs before a page is written: add the address of the page in the other language."""
    pages = {each.file.src_uri: each.file for each in nav.pages}
    name = page.file.src_uri
    is_chinese = name.startswith("zh/")
    twin = name.removeprefix("zh/") if is_chinese else f"zh/{name}"
    other = pages.get(twin) or pages["index.md" if is_chinese else "zh/index.md"]
    context["other_language"] = {
        "address": other.url_relative_to(page.file),
        "name": "English" if is_chinese else "中文",
        "code": "en" if is_chinese else "zh",
    }
    return context


def on_page_content(html: str, page: Any, **_: Any) -> str:
    """Be called by mkdocs with the body of each page: the home gets its buttons, a diagram a link to its file."""
    html = re.sub(r'(<img [^>]*?src="([^"]+\.svg)"[^>]*>)', r'<a class="diagram" href="\2">\1</a>', html)
    if page.file.src_uri not in HOMES:
        return html
    start, celery = (
        ("入门教程", "从 Celery 迁移") if page.file.src_uri.startswith("zh/") else ("Tutorial", "Coming from Celery?")
    )
    buttons = (
        '<p class="buttons">'
        f'<a class="md-button md-button--primary" href="tutorial.html">{start}</a> '
        f'<a class="md-button" href="migration/celery.html">{celery}</a></p>\n'
    )
    head, end, rest = html.partition("</strong></p>")
    return f'<div class="hero">{head}{end}{buttons}</div>{rest}'


def on_post_page(output: str, page: Any, **_: Any) -> str:
    """Be called by mkdocs with each written page: labels of Chinese pages are Chinese."""
    if page.file.src_uri.startswith("zh/"):
        for english, chinese in CHINESE.items():
            output = output.replace(english, chinese)
        output = DIRECTION.sub(lambda link: link[1] + DIRECTIONS[link[2]], output)
    return output
