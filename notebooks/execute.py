"""Executes notebooks and keeps their outputs: `make notebooks`, or `python notebooks/execute.py 1-first-model.ipynb`.

Needs `pip install -e '.[notebooks]'`. Every notebook runs in an empty folder, so that it shows that it needs nothing.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
KERNEL = {"display_name": "Python 3", "language": "python", "name": "python3"}


def names() -> list[str]:
    """All notebooks, in their order."""
    return sorted(path.name for path in HERE.glob("*.ipynb"))


def read(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


def write(book: dict[str, Any], path: Path) -> None:
    path.write_text(json.dumps(book, indent=1, ensure_ascii=False) + "\n", encoding="utf-8", newline="\n")


def executed(book: dict[str, Any], folder: Path, *, last: str = "") -> dict[str, Any]:
    """The notebook with its outputs after a run in `folder`. `last` is code that is run behind it, and is left out.

    Raises subprocess.CalledProcessError, with the traceback in `stderr`, if a cell fails.
    """
    cell = {"cell_type": "code", "id": "last", "metadata": {}, "source": last, "outputs": [], "execution_count": None}
    write({**book, "metadata": {"kernelspec": KERNEL}, "cells": [*book["cells"], cell]}, folder / "given.ipynb")
    command = ["nbconvert", "--to", "notebook", "--execute", "--ExecutePreprocessor.record_timing=False"]
    environment = {name: value for name, value in os.environ.items() if name != "MPLBACKEND"}
    subprocess.run(
        [sys.executable, "-m", *command, "given.ipynb", "--output", "executed.ipynb"],
        cwd=folder, check=True, env=environment, capture_output=True, text=True,
    )  # fmt: skip
    found = read(folder / "executed.ipynb")
    return {**book, "metadata": {"kernelspec": KERNEL}, "cells": [_kept(cell) for cell in found["cells"][:-1]]}


def _kept(cell: dict[str, Any]) -> dict[str, Any]:
    """A cell without what says nothing: metadata, and the names of objects that are shown otherwise."""
    for output in cell.get("outputs", []):
        if "metadata" in output:  # streams and errors have none
            output["metadata"] = {}
        if "text/html" in output.get("data", {}):
            output["data"].pop("text/plain", None)
    return {**cell, "metadata": {}}


def main(chosen: list[str]) -> None:
    for name in chosen or names():
        print(name, flush=True)
        path = HERE / Path(name).name
        with tempfile.TemporaryDirectory() as folder:
            try:
                write(executed(read(path), Path(folder)), path)
            except subprocess.CalledProcessError as error:
                raise SystemExit(error.stderr) from None


if __name__ == "__main__":
    main(sys.argv[1:])
