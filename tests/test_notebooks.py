"""The notebooks: what is kept of them, and that they run and still show what their text says."""

import ast
import re
import runpy
import subprocess
from importlib.util import find_spec
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from pages import REPOSITORY, public

FOLDER = REPOSITORY / "notebooks"
BOOKS = sorted(FOLDER.glob("*.ipynb"))
EXECUTE = runpy.run_path(str(FOLDER / "execute.py"), run_name="execute")
MOST_BYTES = 300_000
OF_ONE_MACHINE = re.compile(r"/home/|/root/|/tmp/|/Users/|/usr/|[A-Z]:\\\\|\b20\d\d-\d\d-\d\d\b|\b\d\d:\d\d:\d\d\b")
CLAIMS = {
    "1-first-model": """
        assert entropy < scores.nats_per_token < 1.1 * entropy
        assert worst.nats > 2
        assert bad[:place].endswith("hear")
        first_letter = [lm.score(f"the cat {rest}.\\n")[at].nats for rest, at in (("sees the dog", 8), (
            "near the river sees the dog", 23))]
        assert abs(first_letter[1] - math.log(4)) < 0.4 < first_letter[0] - first_letter[1]
        strange = []
        for temperature in (1, 1.7):
            written = lm.samples(max_tokens=2000, temperature=temperature, seed=0)[0].split()[:-1]
            strange.append(sum(word not in set(text.split()) for word in written) / len(written))
        assert strange[0] < 0.05 < 0.1 < strange[1]
    """,
    "2-tagger": """
        of_known, of_new = ([tagger.evaluate(work / file).f1 for tagger in taggers.values()]
                            for file in ("names-valid.txt", "names-test.txt"))
        assert min(of_known[1:]) > 0.98
        assert all(new <= known for new, known in zip(of_new, of_known))
        assert of_new[1] - of_new[0] > 0.05 > abs(of_new[2] - of_new[1])
        of_classes = tagger.evaluate(work / "names-test.txt").as_json()["per_label"]
        assert of_classes["LOC"]["f1"] >= max(of_classes["ORG"]["f1"], of_classes["PER"]["f1"])
        labels = [path.labels[0] for path in unsure.paths]
        assert labels[:2] == ["B-ORG", "B-PER"]
        assert unsure.paths[0].labels == unsure.labels
    """,
}
"""What the text of each notebook says of its results, over the names in its cells."""

of_each_book = pytest.mark.parametrize("path", BOOKS, ids=lambda path: path.stem)


def cells(path: Path, kind: str) -> list[dict[str, Any]]:
    return [cell for cell in EXECUTE["read"](path)["cells"] if cell["cell_type"] == kind]


def source(cell: dict[str, Any]) -> str:
    return "".join(cell["source"])


@of_each_book
def test_outputs_are_kept_and_light(path: Path) -> None:
    assert path.stat().st_size < MOST_BYTES
    code = cells(path, "code")
    assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1)), "make notebooks"
    outputs = [output for cell in code for output in cell["outputs"]]
    assert not [output for output in outputs if output["output_type"] == "error" or output.get("name") == "stderr"]
    texts = [str(output) for output in outputs]
    pictures = re.compile(r"'image/png': '[^']*'")
    assert not [found[0] for text in texts if (found := OF_ONE_MACHINE.search(pictures.sub("", text)))]


@of_each_book
def test_notebooks_take_what_is_public(path: Path) -> None:
    known = set(public())
    for cell in cells(path, "code"):
        for node in ast.walk(ast.parse(source(cell))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("ensue"):
                names = {f"{node.module}.{alias.name}" for alias in node.names}
                assert node.module == "ensue.nn" or names <= known


@of_each_book
def test_links_of_notebooks_lead_somewhere(path: Path) -> None:
    links = re.findall(r"\]\(([^)\s]+)\)", "".join(map(source, cells(path, "markdown"))))
    assert not [link for link in links if not (path.parent / link.partition("#")[0]).exists()]


@pytest.mark.slow
@of_each_book
def test_notebooks_run_and_show_what_they_say(path: Path, tmp_path: Path) -> None:
    if missing := [name for name in ("nbconvert", "ipykernel") if find_spec(name) is None]:
        pytest.skip(f"{' and '.join(missing)}: not installed; make .venv/.installed-notebooks")
    try:
        EXECUTE["executed"](EXECUTE["read"](path), tmp_path, last=dedent(CLAIMS[path.stem]))
    except subprocess.CalledProcessError as error:
        pytest.fail(error.stderr)
