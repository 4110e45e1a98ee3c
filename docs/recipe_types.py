"""The names of the core's recipes by the class of their pipeline; `python docs/recipe_types.py` writes the file.

From this file type checkers know what `ensue.train` returns. A test checks that the file is up to date.
"""

from collections import defaultdict
from pathlib import Path
from textwrap import fill, indent

import ensue.recipes
from ensue.recipe import read_recipe
from ensue.tasks import TASKS, task_entry

FILE = Path(__file__).resolve().parents[1] / "src/ensue/recipe/pipelines.pyi"


def text() -> str:
    """Return the text of the file."""
    names = defaultdict(list)
    for path in Path(*ensue.recipes.__path__).glob("*.toml"):
        if (task := read_recipe(path.stem).task) in TASKS:
            names[task_entry(task).pipeline_class.__name__].append(f'"{path.stem}",')
    code = '"""The recipes of each pipeline, for type checkers. `python docs/recipe_types.py` writes this file."""\n\n'
    code += "from typing import Literal\n\n"
    for pipeline, recipes in sorted(names.items()):
        lines = fill(" ".join(sorted(recipes)), 116, break_on_hyphens=False)
        code += f"{pipeline} = Literal[\n{indent(lines, '    ')}\n]  # fmt: skip\n"
    return code


if __name__ == "__main__":
    FILE.write_text(text(), encoding="utf-8")
