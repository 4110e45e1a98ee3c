"""Drawing of docs/house.svg: the folders of the package in layers, computed from the imports of the source.

`python docs/house.py` writes the picture. tests/test_house.py checks that the picture is up to date.
"""

import sys
from itertools import groupby
from pathlib import Path
from typing import NamedTuple
from xml.sax.saxutils import escape

REPOSITORY = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(REPOSITORY / "tests"))

from source_imports import SOURCE, imports, modules  # noqa: E402

PICTURE = Path(__file__).with_name("house.svg")
WIDTH, GAP, HEIGHT, SIDE = 960, 10, 34, 24
GROUND = "single files: types, errors, outputs, parsing, extension, ..."
STYLE = """
text { font: 14px sans-serif; fill: #222; text-anchor: middle } .title { font-weight: bold; text-anchor: start }
.note { font-size: 11px; fill: #555 }
.core { fill: #d9e6f5; stroke: #5b7fa6 } .extension { fill: #f6e6d0; stroke: #b0803c }
@media (prefers-color-scheme: dark) { text { fill: #eee } .note { fill: #bbb }
.core { fill: #24405e; stroke: #7fa3c8 } .extension { fill: #55401f; stroke: #c99a55 } }
"""


class House(NamedTuple):
    """The layers of the core, from the lowest, and for each extension the extensions that it imports."""

    layers: list[list[str]]
    extensions: dict[str, list[str]]


def folder(module: str) -> str:
    """Return the box of a module: a folder of the core, `extensions/NAME`, a module above the ground, or ""."""
    names = module.split(".")
    if module in ("ensue", "ensue.extensions", "ensue.tasks", "ensue.tasks.entry", "ensue.__main__"):
        return ""  # tables of names, which import nothing
    return "/".join(names[1:3]) if names[1] == "extensions" else names[1]


def house(source: Path = SOURCE) -> House:
    """Return the folders by layers: each folder is above the folders that it imports."""
    names = {folder(name) for name in modules(source)} - {""}
    below: dict[str, set[str]] = {name: set() for name in names}
    for edge in imports(source):
        importer, imported = folder(edge.importer), folder(edge.imported) if "ensue" in edge.imported else ""
        if edge.at_runtime and importer and imported in names and importer != imported:
            below[importer].add(imported)
    core = {name for name in names if not name.startswith("extensions/")}
    ground = {name for name in core if (source / "ensue" / f"{name}.py").exists()}
    while above := {name for name in ground if (below[name] & core) - ground}:
        ground -= above
    levels = dict.fromkeys(ground, 0) | dict.fromkeys(core - ground, 1)
    for _ in levels:  # the longest path from the ground; tests/test_floor_plan.py forbids cycles
        levels |= {name: max((levels[other] + 1 for other in below[name] & core), default=1) for name in core - ground}
    ordered = sorted(core - ground, key=lambda name: (levels[name], name))
    layers = [list(group) for _, group in groupby(ordered, key=lambda name: levels[name])]
    extensions = {
        name.removeprefix("extensions/"): sorted(
            other.removeprefix("extensions/") for other in below[name] if other.startswith("extensions/")
        )
        for name in sorted(names - core)
    }
    return House(layers, extensions)


def row(boxes: list[tuple[str, str]], kind: str, top: int, *, height: int = HEIGHT) -> str:
    """Return a row of boxes of equal width as SVG. `boxes` are pairs of a name and a note."""
    width = (WIDTH - 2 * SIDE - GAP * (len(boxes) - 1)) / len(boxes)
    elements = ""
    for place, (name, note) in enumerate(boxes):
        left = SIDE + place * (width + GAP)
        middle = left + width / 2
        elements += f'<rect class="{kind}" x="{left:.1f}" y="{top}" width="{width:.1f}" height="{height}" rx="5"/>'
        elements += f'<text x="{middle:.1f}" y="{top + 22}">{escape(name)}</text>'
        elements += f'<text class="note" x="{middle:.1f}" y="{top + 37}">{escape(note)}</text>\n' if note else "\n"
    return elements


def picture(house: House) -> str:
    """Return the house as SVG."""
    extensions = [(name, f"needs {', '.join(needs)}" if needs else "") for name, needs in house.extensions.items()]
    half = (len(extensions) + 1) // 2
    body = f'<text class="title" x="{SIDE}" y="24">extensions: each is one folder, and the core imports none</text>\n'
    top = 36
    for boxes in (extensions[:half], extensions[half:]):
        body += row(boxes, "extension", top, height=46)
        top += 46 + GAP
    body += f'<text class="title" x="{SIDE}" y="{top + 18}">core: each folder imports only from rows below it</text>\n'
    top += 30
    for layer in reversed(house.layers):
        body += row([(name, "") for name in layer], "core", top)
        top += HEIGHT + GAP
    body += row([(GROUND, "")], "core", top)
    size = f'width="{WIDTH}" height="{top + HEIGHT + SIDE}" viewBox="0 0 {WIDTH} {top + HEIGHT + SIDE}"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size}>\n<style>{STYLE}</style>\n{body}</svg>\n'


if __name__ == "__main__":
    PICTURE.write_text(picture(house()), encoding="utf-8")
