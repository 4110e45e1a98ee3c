"""docs/house.svg shows the folders of the source and their layers, as docs/house.py draws them from the imports."""

import runpy
from pathlib import Path
from xml.etree import ElementTree

from pages import REPOSITORY

HOUSE = runpy.run_path(str(REPOSITORY / "docs" / "house.py"))


def write(source: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = source / "ensue" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        (path.parent / "__init__.py").touch()
        path.write_text(text, encoding="utf-8")


def test_the_picture_is_up_to_date() -> None:
    picture = (REPOSITORY / "docs" / "house.svg").read_text(encoding="utf-8")
    assert picture == HOUSE["picture"](HOUSE["house"]()), "python docs/house.py brings it up to date"


def test_a_folder_lies_above_what_it_imports(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "__init__.py": "", "types.py": "", "nn/lstm.py": "from ensue.types import State",
            "models/text.py": "from ensue.nn import lstm", "text/words.py": "",
            "extensions/frames/data.py": "from ensue.models import text",
            "extensions/exporting/c.py": "from ensue.extensions.frames import data",
        },
    )  # fmt: skip
    house = HOUSE["house"](tmp_path)
    assert house.layers == [["nn", "text"], ["models"]]
    assert house.extensions == {"exporting": ["frames"], "frames": []}
    names = {element.text for element in ElementTree.fromstring(HOUSE["picture"](house)).iter()}
    assert {"nn", "text", "models", "exporting", "frames", "needs frames"} <= names
