"""The floor plan of docs/architecture.md: which part of the house may import which, and never in a circle."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from source_imports import SOURCE, circles, imports, modules

FLOORS = [
    [
        "extension", "outputs", "ranks", "types", "version", "private_folder", "cache", "notices", "stored", "parsing",
        "processor", "interruption", "errors",
    ],
    ["TASKS"],
    ["text"],
    ["data"],
    ["engine"],
    ["nn"],
    ["models"],
    ["decode"],
    ["recipe", "recipes"],
    ["runs"],
    ["inspection"],
    ["metrics"],
    ["tasks"],
    ["training"],
    ["library", "testing", "trackers"],
    ["__main__", "cli", "console", "quickstart"],
    ["extensions"],
]  # fmt: skip
"""From the ground up. On a floor, one door leads on: what stands to the left may read what stands to its right."""
ORDER = {part: place for place, part in enumerate(part for floor in FLOORS for part in reversed(floor))}
ROOMS = {
    "data": [["records"], ["detection"], ["corpus", "sentences", "examples"]],
    "tasks": [
        ["contract"], [""], ["texts"], ["vectors"], ["words"],
        ["language_modeling", "labeling", "classification", "sequence_to_sequence", "masked_language_modeling"],
    ],
}  # fmt: skip
"""Folders of a part, from the ground up, with the part's own files ("") below them all if they have no other place. The
folders of a row import nothing from each other.
"""
ALONE = {"engine": FLOORS[0], "nn": [*FLOORS[0], "engine"]}
"""What works without everything else, though other floors lie below it."""
WITHOUT_TORCH = {"text", "data"}
SAY_NOTHING = {"utils", "util", "helpers", "helper", "common", "base", "core", "manager", "misc"}


def part(module: str) -> str:
    """The part of the house that a module of ours belongs to: `nn` for ensue.nn.lstm, "" for the package itself.

    `TASKS` is the table of tasks, which knows them by name alone and lies below all that asks it.
    """
    if module in ("ensue.tasks", "ensue.tasks.entry"):
        return "TASKS"
    return module.split(".")[1] if "." in module else ""


def is_ours(module: str) -> bool:
    return module.split(".", maxsplit=1)[0] == "ensue"


def wrong_imports(source: Path) -> list[str]:
    return [
        f"{found.importer}:{found.line} imports {found.imported}"
        for found in imports(source)
        if is_ours(found.imported)
        and part(found.importer)
        and part(found.imported) != "extensions"  # see tests/extensions/test_extension_laws.py
        and not (part(found.importer) == "TASKS" and not found.at_use)
        and not is_allowed(part(found.importer), part(found.imported))
    ]


def is_allowed(importer: str, imported: str) -> bool:
    if importer == imported:
        return True
    if importer in ALONE:
        return imported in ALONE[importer]
    return {importer, imported} <= set(ORDER) and ORDER[imported] < ORDER[importer]


def wrong_doors(source: Path) -> list[str]:
    """Imports from a room of the same part that does not lie below."""
    return [
        f"{found.importer}:{found.line} imports {found.imported}"
        for found in imports(source)
        if part(found.importer) == part(found.imported)
        and room(found.importer) != room(found.imported)
        and level(found.importer) <= level(found.imported)
    ]


def room(module: str) -> str:
    """The folder of a part that a module stands in: `corpus` for ensue.data.corpus.pairs, "" for the part's own."""
    above = module.split(".")[2:3]
    return above[0] if above and any(above[0] in row for row in ROOMS.get(part(module), [])) else ""


def level(module: str) -> int:
    return next((n for n, row in enumerate(ROOMS.get(part(module), [])) if room(module) in row), -1)


def unplaced(source: Path) -> list[str]:
    return sorted({part(name) for name in modules(source)} - {"", *ORDER})


def ways_to_torch(source: Path) -> list[str]:
    """Modules of `WITHOUT_TORCH` from which torch is reached, by themselves or through others of ours."""
    reaches = {"torch"}
    edges = [(found.importer, found.imported) for found in imports(source) if found.at_use]
    while new := {a for a, b in edges if (b in reaches or b.split(".")[0] == "torch")} - reaches:
        reaches |= new
    return sorted(name for name in reaches if is_ours(name) and part(name) in WITHOUT_TORCH)


def names_that_say_nothing(source: Path) -> list[str]:
    return sorted(name for name in modules(source) if SAY_NOTHING & set(name.split(".")))


def test_a_file_imports_from_floors_below_its_own() -> None:
    assert wrong_imports(SOURCE) == []


def test_a_room_imports_from_rooms_below_its_own() -> None:
    assert wrong_doors(SOURCE) == []


def test_everything_has_its_floor() -> None:
    assert unplaced(SOURCE) == []


def test_nothing_goes_in_a_circle() -> None:
    assert circles(SOURCE) == []


def test_text_and_data_need_no_torch() -> None:
    assert ways_to_torch(SOURCE) == []


def test_files_are_nouns() -> None:
    assert names_that_say_nothing(SOURCE) == []


def test_the_plan_sees_the_house() -> None:
    """The rules above would hold of an empty list, too."""
    pairs = {(found.importer, found.imported) for found in imports(SOURCE)}
    assert ("ensue.nn.recurrent.lstm", "ensue.nn.layer") in pairs
    assert ("ensue.nn.layer", "ensue.types") in pairs
    assert ("ensue.types", "torch") in pairs


LATE = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from ensue.nn.a import X"
ALLOWED = {
    "nn/lstm.py": "from ensue.nn.layer import X\nfrom ensue.types import Y\nimport torch", "nn/layer.py": "",
    "training/loop.py": "from ensue import errors\nfrom ensue.data.corpus.batches import Z\nimport ensue.recipe",
    "recipe.py": "", "data/batches.py": "from ensue.text import words", "text/words.py": "", "types.py": "",
    "errors.py": "", "__init__.py": "from ensue.training import loop",
}  # fmt: skip
PLANTED: list[tuple[Callable[[Path], list[Any]], dict[str, str], int]] = [
    (wrong_imports, {"nn/lstm.py": "import ensue.models.tagger", "models/tagger.py": ""}, 1),
    (wrong_imports, {"nn/lstm.py": "from ensue.text import words", "text/words.py": ""}, 1),
    (wrong_imports, {"nn/lstm.py": "from ..data import files", "data/files.py": ""}, 1),
    (wrong_imports, {"text/a.py": "def f():\n    from ensue.training import b", "training/b.py": ""}, 1),
    (wrong_imports, {"recipes/lstm.py": "from ensue.recipe import x", "recipe/x.py": ""}, 1),
    (wrong_imports, {"errors.py": "from ensue.types import X", "types.py": ""}, 1),
    (wrong_imports, {"nn/lstm.py": "import ensue", "__init__.py": ""}, 1),
    (wrong_imports, ALLOWED, 0),
    (unplaced, ALLOWED, 0),
    (unplaced, {"plugins/__init__.py": ""}, 1),
    (wrong_doors, {"data/lines.py": "from ensue.data.corpus import x", "data/corpus/x.py": ""}, 1),
    (wrong_doors, {"data/detection/x.py": "import ensue.data.corpus.y", "data/corpus/y.py": ""}, 1),
    (wrong_doors, {"data/corpus/x.py": "import ensue.data.sentences.y", "data/sentences/y.py": ""}, 1),
    (wrong_doors, {"data/corpus/x.py": "import ensue.data.records.z", "data/records/z.py": "import ensue.data.a"}, 0),
    (circles, {"nn/a.py": "import ensue.nn.b", "nn/b.py": "from ensue.nn import c", "nn/c.py": "from .a import X"}, 1),
    (circles, {"nn/a.py": "import ensue.nn.b", "nn/b.py": LATE}, 0),
    (lambda source: circles(source, annotations=True), {"nn/a.py": "import ensue.nn.b", "nn/b.py": LATE}, 1),
    (ways_to_torch, {"text/words.py": "import torch.nn"}, 1),
    (ways_to_torch, {"text/words.py": "from ensue.types import State", "types.py": "import torch"}, 1),
    (ways_to_torch, {"text/words.py": "import numpy", "types.py": "import torch"}, 0),
    (names_that_say_nothing, {"text/utils.py": "", "core/x.py": ""}, 2),
]  # fmt: skip


@pytest.mark.parametrize(("check", "files", "count"), PLANTED)
def test_a_planted_violation_is_noticed(
    tmp_path: Path, check: Callable[[Path], list[Any]], files: dict[str, str], count: int
) -> None:
    for name, text in files.items():
        path = tmp_path / "ensue" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    assert len(check(tmp_path)) == count


def test_no_test_imports_a_test_module() -> None:
    """Helpers have files of their own, or conftest.py."""
    tests = Path(__file__).parent
    imports = re.compile(r"^ *(?:from|import) +[\w.]*\btest_\w+", re.MULTILINE)
    found = {str(path.relative_to(tests)): imports.findall(path.read_text("utf-8")) for path in tests.rglob("*.py")}
    assert {name: lines for name, lines in found.items() if lines} == {}
