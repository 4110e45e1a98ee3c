"""Modules of JavaScript and pages: how they are made, run in Node, and declared."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

import ensue
from ensue.extensions.exporting.web import writing as web
from extensions.exporting.c.conftest import HAS_ZIG
from inspection.browser import Browser
from kept_runs.make import unpacked

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


def node(folder: Path, file: str, given: str = "") -> str:
    """What a program says, which does not complain."""
    assert NODE is not None
    found = subprocess.run([NODE, file], cwd=folder, input=given, capture_output=True, text=True, check=False)
    assert (found.returncode, found.stderr) == (0, "")
    return found.stdout


def with_page(name: str, folder: Path) -> Path:
    """A folder with that kept run, and with its page."""
    unpacked(name, folder)
    ensue.export_run(folder / name, folder / "page", "web")
    return folder


def members_of(interface: str, declared: str) -> set[str]:
    """The names of an interface in declarations of TypeScript, with those of the interface that it extends."""
    body = re.search(rf"interface {interface}(?: extends (\w+))? {{\n(.*?)\n}}", declared, re.DOTALL)
    assert body is not None
    others = members_of(body[1], declared) if body[1] else set()
    return others | set(re.findall(r"^  (?:readonly )?(\w+)[(:]", body[2], re.MULTILINE))


def check_widths(browser: Browser) -> None:
    """A page fits a narrow and a wide window, without barriers."""
    for width in (360, 1400):
        browser.resize(width, 900)
        assert browser.run("return document.documentElement.scrollWidth") <= width
        assert browser.barriers() == []
