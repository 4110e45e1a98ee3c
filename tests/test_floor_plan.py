"""The layers of docs/architecture.md: which part of the package may import which, without cycles."""

import re
from collections import defaultdict
from collections.abc import Callable
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest

from source_imports import SOURCE, import_cycles, imports, modules, reach

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
"""The parts of the package from the lowest floor up. A part may import lower floors and parts to its right."""
ORDER = {part: place for place, part in enumerate(part for floor in FLOORS for part in reversed(floor))}
ROOMS = {
    "data": [["records"], ["detection"], ["corpus", "sentences", "examples"]],
    "tasks": [
        ["contract"], [""], ["texts"], ["vectors"], ["words"],
        ["language_modeling", "labeling", "classification", "sequence_to_sequence", "masked_language_modeling"],
    ],
}  # fmt: skip
"""Folders of a part from the lowest up; the part's own files ("") are the lowest unless the table places them. The
folders of a row import nothing from each other.
"""
ALONE = {"engine": FLOORS[0], "nn": [*FLOORS[0], "engine"]}
"""Parts that may import only these parts, though other floors lie below."""
WITHOUT_TORCH = {"text", "data"}
IMPORTED_LATE = {
    "ensue": {"numpy", "pydantic", "torch"}, "ensue.cli": {"numpy", "pydantic", "torch"}, "ensue.recipe": {"torch"},
    "ensue.extensions.surveying.summary": {"ensue.recipe", "matplotlib", "torch"},
}  # fmt: skip
"""Modules that the import of a module does not load, directly or indirectly."""
VAGUE_NAMES = {"utils", "util", "helpers", "helper", "common", "base", "core", "manager", "misc"}


def part(module: str) -> str:
    """Return the part to which a module belongs: `nn` for ensue.nn.lstm, "" for the package itself.

    `TASKS` is the table of tasks, which imports no task and lies below all its users.
    """
    if module in ("ensue.tasks", "ensue.tasks.entry"):
        return "TASKS"
    return module.split(".")[1] if "." in module else ""


def is_ours(module: str) -> bool:
    return module.split(".", maxsplit=1)[0] == "ensue"


def wrong_imports(source: Path) -> list[str]:
    return [
        f"{edge.importer}:{edge.line} imports {edge.imported}"
        for edge in imports(source)
        if is_ours(edge.imported)
        and part(edge.importer)
        and part(edge.imported) != "extensions"  # see tests/extensions/test_extension_laws.py
        and not (part(edge.importer) == "TASKS" and not edge.at_runtime)
        and not is_allowed(part(edge.importer), part(edge.imported))
    ]


def is_allowed(importer: str, imported: str) -> bool:
    if importer == imported:
        return True
    if importer in ALONE:
        return imported in ALONE[importer]
    return {importer, imported} <= set(ORDER) and ORDER[imported] < ORDER[importer]


def wrong_rooms(source: Path) -> list[str]:
    """Return the imports from a folder of the same part that is not lower."""
    return [
        f"{edge.importer}:{edge.line} imports {edge.imported}"
        for edge in imports(source)
        if part(edge.importer) == part(edge.imported)
        and room(edge.importer) != room(edge.imported)
        and level(edge.importer) <= level(edge.imported)
    ]


def room(module: str) -> str:
    """Return the folder of a module within its part: `corpus` for ensue.data.corpus.pairs, "" if the table has none."""
    above = module.split(".")[2:3]
    return above[0] if above and any(above[0] in row for row in ROOMS.get(part(module), [])) else ""


def level(module: str) -> int:
    return next((n for n, row in enumerate(ROOMS.get(part(module), [])) if room(module) in row), -1)


def unplaced(source: Path) -> list[str]:
    return sorted({part(name) for name in modules(source)} - {"", *ORDER})


def importers_of_torch(source: Path) -> list[str]:
    """Return the modules of the parts `WITHOUT_TORCH` that import torch, directly or indirectly."""
    reaches = {"torch"}
    edges = [(edge.importer, edge.imported) for edge in imports(source) if edge.at_runtime]
    while new := {a for a, b in edges if (b in reaches or b.split(".")[0] == "torch")} - reaches:
        reaches |= new
    return sorted(name for name in reaches if is_ours(name) and part(name) in WITHOUT_TORCH)


def early_imports(source: Path) -> list[str]:
    """Return the modules of `IMPORTED_LATE` that are imported early."""
    graph: dict[str, set[str]] = defaultdict(set)
    for name in modules(source):
        graph[name] |= {".".join(name.split(".")[:-1])} - {""}
    for edge in imports(source):
        if edge.at_runtime and not edge.is_late:
            graph[edge.importer] |= set(accumulate(edge.imported.split("."), "{}.{}".format))
    return [f"{name} imports {early}" for name, late in IMPORTED_LATE.items() for early in late & reach(name, graph)]


def vague_names(source: Path) -> list[str]:
    return sorted(name for name in modules(source) if VAGUE_NAMES & set(name.split(".")))


def test_a_file_imports_from_floors_below_its_own() -> None:
    assert wrong_imports(SOURCE) == []


def test_a_room_imports_from_rooms_below_its_own() -> None:
    assert wrong_rooms(SOURCE) == []


def test_every_part_is_on_a_floor() -> None:
    assert unplaced(SOURCE) == []


def test_imports_have_no_cycles() -> None:
    assert import_cycles(SOURCE) == []


def test_text_and_data_need_no_torch() -> None:
    assert importers_of_torch(SOURCE) == []


def test_a_module_loads_no_large_package_early() -> None:
    assert early_imports(SOURCE) == []


def test_no_module_has_a_vague_name() -> None:
    assert vague_names(SOURCE) == []


def test_the_imports_of_the_source_are_read() -> None:
    """The tests above would pass for an empty list of imports."""
    pairs = {(edge.importer, edge.imported) for edge in imports(SOURCE)}
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
    (wrong_rooms, {"data/lines.py": "from ensue.data.corpus import x", "data/corpus/x.py": ""}, 1),
    (wrong_rooms, {"data/detection/x.py": "import ensue.data.corpus.y", "data/corpus/y.py": ""}, 1),
    (wrong_rooms, {"data/corpus/x.py": "import ensue.data.sentences.y", "data/sentences/y.py": ""}, 1),
    (wrong_rooms, {"data/corpus/x.py": "import ensue.data.records.z", "data/records/z.py": "import ensue.data.a"}, 0),
    (import_cycles, {"nn/a.py": "import ensue.nn.b", "nn/b.py": "import ensue.nn.c", "nn/c.py": "from .a import X"}, 1),
    (import_cycles, {"nn/a.py": "import ensue.nn.b", "nn/b.py": LATE}, 0),
    (lambda source: import_cycles(source, annotations=True), {"nn/a.py": "import ensue.nn.b", "nn/b.py": LATE}, 1),
    (importers_of_torch, {"text/words.py": "import torch.nn"}, 1),
    (importers_of_torch, {"text/words.py": "from ensue.types import State", "types.py": "import torch"}, 1),
    (importers_of_torch, {"text/words.py": "import numpy", "types.py": "import torch"}, 0),
    (early_imports, {"cli/__init__.py": "from ensue.a import x", "a.py": "import torch.nn"}, 1),
    (early_imports, {"cli/__init__.py": "def f():\n    import torch", "a.py": "import torch"}, 0),
    (vague_names, {"text/utils.py": "", "core/x.py": ""}, 2),
]  # fmt: skip


@pytest.mark.parametrize(("check", "files", "count"), PLANTED)
def test_a_planted_violation_is_detected(
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
    lines = {str(path.relative_to(tests)): imports.findall(path.read_text("utf-8")) for path in tests.rglob("*.py")}
    assert {name: lines[name] for name in lines if lines[name]} == {}
