"""Write modules of JavaScript and pages, run them in Node and in a browser, and read their declarations."""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from ensue.extensions.exporting.web import writing as web
from ensue.version import package_text
from extensions.exporting.c.conftest import HAS_ZIG
from inspection.browser import Browser, browsing

NODE = shutil.which("node")
needs_zig = pytest.mark.skipif(not HAS_ZIG, reason="no ziglang (pip install --target build/ziglang ziglang)")
needs_node = pytest.mark.skipif(NODE is None, reason="no node")


def put_module(code: dict[str, bytes], name: str, page: str, folder: Path, driver: str) -> None:
    """Write a module with the page of this name, and `drive.js` beside it."""
    pages = {each.name: each for each in web.PAGES.values()}
    (folder / f"{name}.js").write_text(
        web.javascript_module(code, name, pages[page], web.compile_page), encoding="utf-8"
    )
    (folder / "package.json").write_text('{"type": "module"}')
    (folder / "drive.js").write_text(driver)


def node(folder: Path, file: str, input_text: str = "") -> str:
    """Run a program in Node without errors and return its output."""
    assert NODE is not None
    completed = subprocess.run([NODE, file], cwd=folder, input=input_text, capture_output=True, text=True, check=False)
    assert (completed.returncode, completed.stderr) == (0, "")
    return completed.stdout


def run_module(folder: Path, page: str, question: object) -> Iterator[dict[str, Any]]:
    """Yield the outputs of `drive.js` with and without vectors."""
    outputs = json.loads(node(folder, "drive.js", question if isinstance(question, str) else json.dumps(question)))
    declared = "".join(package_text(f"{web.TEMPLATES}/{name}.d.ts") for name in page.split())
    for is_wide in (True, False):
        output = outputs.pop(json.dumps(is_wide))
        assert output["simd"] == is_wide
        if "members" in output:
            assert members_of("Model", declared) == set(output["members"]) - {"constructor"}
        yield output | outputs


def in_node(test: Any) -> Any:
    """Mark a test that needs Node and a compiler."""
    return pytest.mark.slow(needs_zig(needs_node(test)))


def in_a_browser(test: Any) -> Any:
    """Mark a test of a page in light and dark colors."""
    return pytest.mark.slow(needs_zig(pytest.mark.parametrize("dark", [False, True])(test)))


@contextmanager
def opened(folder: Path, *, dark: bool) -> Iterator[Browser]:
    """Open the page of a folder; at the end check that it had no errors and fits its window."""
    with TemporaryDirectory() as profile, browsing(Path(profile) / "browser", dark=dark) as browser:
        browser.open(folder / "page" / "page.html")
        yield browser
        check_widths(browser)
        assert browser.complaints() == []


def members_of(interface: str, declared: str) -> set[str]:
    """Return the members of an interface in TypeScript, with those of the interface that it extends."""
    body = re.search(rf"interface {interface}(?: extends (\w+))? {{\n(.*?)\n}}", declared, re.DOTALL)
    assert body is not None
    others = members_of(body[1], declared) if body[1] else set()
    return others | set(re.findall(r"^  (?:readonly )?(\w+)[(:]", body[2], re.MULTILINE))


def check_widths(browser: Browser) -> None:
    """Check that a page fits a narrow and a wide window and has no accessibility barriers."""
    for width in (360, 1400):
        browser.resize(width, 900)
        assert browser.run("return document.documentElement.scrollWidth") <= width
        assert browser.barriers() == []
