"""The built pages in a browser are accessible and fit narrow and wide screens."""

import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import pytest
from filelock import FileLock

from inspection.browser import browsing
from pages import PAGES, REPOSITORY

pytestmark = pytest.mark.slow

MAIN = (
    "index", "quickstart", "migration", "labeling", "recipes", "api", "layers/index", "layers/lstm", "benchmarks",
    "inspector", "search",
)  # fmt: skip
WIDTHS = (360, 1400)
BEYOND = """
return [...document.querySelectorAll("article *")].filter(e => {
  if (e.getBoundingClientRect().right <= innerWidth + 1) return false;
  for (let box = e; box && box !== document.body; box = box.parentElement)
    if (getComputedStyle(box).overflowX !== "visible") return false;
  return true;
}).map(e => e.outerHTML.slice(0, 200))
"""
"""A script for the elements beyond the right edge that are not in a scrolling box."""


class PageParser(HTMLParser):
    """A page's links, its anchors, and its images without an alternative text."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.undescribed: list[str] = []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = dict(attrs)
        self.anchors |= {attributes.get("id") or ""}
        self.links += [attributes.get("href" if tag == "a" else "src") or ""]
        if tag == "img" and not re.search(r"\w+ \w+", attributes.get("alt") or ""):
            self.undescribed.append(str(attributes))


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the pages where `make docs` does and return the folder; warnings of Sphinx are errors.

    Sphinx does not rebuild unchanged pages, and the lock makes other workers wait.
    """
    pytest.importorskip("furo", reason="there is no Sphinx with its theme: make .venv/.installed-docs")
    docs = REPOSITORY / "docs"
    with FileLock(tmp_path_factory.getbasetemp().parent / "site"):
        command = [sys.executable, "-m", "sphinx", "-q", "-W", "-b", "html", docs, docs / "_build"]
        subprocess.run(command, check=True, timeout=300)
    return docs / "_build"


def test_links_have_targets_and_images_are_described(site: Path) -> None:
    read = {path: PageParser(path) for path in site.rglob("*.html") if "_static" not in path.parts}
    assert len(read) > len([page for page in PAGES if (REPOSITORY / "docs") in page.parents])
    for path, page in read.items():
        assert page.undescribed == [], path.name
        for link in page.links:
            if re.match("[a-z]+:", link):
                continue
            name, _, anchor = unquote(link).partition("#")
            target = (path.parent / name.partition("?")[0]).resolve() if name else path
            assert target.exists(), f"{path.name}: {link}"
            assert not anchor or target not in read or anchor in read[target].anchors, f"{path.name}: {link}"


def test_no_formula_shows_its_source(site: Path) -> None:
    pages = [path.read_text(encoding="utf-8") for path in site.rglob("*.html") if "_static" not in path.parts]
    formulas = [formula for page in pages for formula in re.findall(r"<math.*?</math>", page, re.DOTALL)]
    assert len(formulas) > 300
    assert [formula for formula in formulas if re.search(r"[\\&](?!#?\w+;)", formula)] == []


def test_no_page_loads_files_of_another_server(site: Path) -> None:
    external = r"<(?:script|link|img|iframe)[^>]* (?:src|href)=\"(?:https?:)?//[^>]*"
    for path in site.rglob("*.html"):
        assert re.findall(external, path.read_text(encoding="utf-8")) == [], path.name


@pytest.mark.parametrize("dark", [False, True])
def test_the_main_pages_are_accessible(dark: bool, site: Path, tmp_path: Path) -> None:
    with browsing(tmp_path / "browser", dark=dark) as browser:
        for name in MAIN:
            browser.open(site / f"{name}.html")
            for width in WIDTHS[dark:]:  # colors do not depend on the width
                browser.resize(width, 900)
                assert browser.barriers() == [], f"{name}, {width} pixels"


def test_no_element_is_beyond_the_right_edge(site: Path, tmp_path: Path) -> None:
    with browsing(tmp_path / "browser") as browser:
        for path in sorted(site.rglob("*.html")):
            if "_static" not in path.parts:
                browser.open(path)
                for width in WIDTHS:
                    browser.resize(width, 900)
                    assert browser.run("return document.documentElement.scrollWidth") <= width, path.name
                    assert browser.run(BEYOND) == [], f"{path.name}, {width} pixels"


def test_an_element_beyond_the_right_edge_is_detected(tmp_path: Path) -> None:
    box = '<div style="{}"><p style="width: 900px">wide</p></div>'
    with browsing(tmp_path / "browser") as browser:
        for style, count in (("", 1), ("overflow-x: auto", 0)):
            (tmp_path / "page.html").write_text(f"<article>{box.format(style)}</article>", encoding="utf-8")
            browser.open(tmp_path / "page.html")
            browser.resize(360, 900)
            assert len(browser.run(BEYOND)) == count


def test_search_finds_a_page(site: Path, tmp_path: Path) -> None:
    """The pages are opened from disk, without a server."""
    with browsing(tmp_path / "browser") as browser:
        browser.open(f"file://{site}/search.html?q=peephole")
        browser.until("document.querySelectorAll('ul.search li').length > 1")
        assert any("LSTM with peepholes" in text for text in browser.texts("ul.search li"))


def test_dark_mode_follows_the_system_and_a_button(site: Path, tmp_path: Path) -> None:
    def is_dark() -> bool:
        color = "getComputedStyle(document.body).backgroundColor"
        return sum(map(int, re.findall(r"\d+", browser.run(f"return {color}"))[:3])) < 200

    for dark in (False, True):
        with browsing(tmp_path / f"browser-{dark}", dark=dark) as browser:
            browser.open(site / "index.html")
            # Before the style sheet is loaded, the page is transparent.
            browser.until("getComputedStyle(document.body).backgroundColor !== 'rgba(0, 0, 0, 0)'")
            assert is_dark() == dark
            browser.run("for (const _ of [1, 2]) document.querySelector('.theme-toggle').click()")
            seen = browser.run("return document.body.dataset.theme")
            assert is_dark() == (seen == "dark")
            assert seen in ("dark", "light")
