"""The notebooks are stored with small outputs, run, and still show what their text says."""

import ast
import re
import runpy
import subprocess
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from pages import REPOSITORY, public

FOLDER = REPOSITORY / "notebooks"
BOOKS = sorted(FOLDER.glob("*.ipynb"))
EXECUTE = runpy.run_path(str(FOLDER / "execute.py"), run_name="execute")
MAX_UNIT_BYTES = 300_000
MACHINE_DEPENDENT = re.compile(r"(?<![\w.<:/])/[A-Za-z][\w.-]*/|[A-Z]:\\\\|\b20\d\d-\d\d-\d\d\b|\b\d\d:\d\d:\d\d\b")
"""An absolute path, a date, or a time of day."""
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
    "3-lstm-gru-transformer": """
        assert found["transformer"][1] < found["lstm"][1] < 0.3 < 0.8 < found["gru"][1] < GUESS
        assert all(abs(first - GUESS) < 0.05 for first, second in found.values())
        of_longer = {kind: halves(model, longer)[1] for kind, model in models.items()}
        assert min(of_longer.values()) > 1.535
        assert max(of_longer, key=of_longer.get) == "transformer"
    """,
    "4-looking-inside": """
        of_brackets = view.correlations[[one.name for one in view.units].index("layer 1, cell")]
        r = of_brackets[list(view.properties).index("in brackets"), best.number]
        assert best.correlation * r < 0 < min(abs(best.correlation), abs(r)) - 0.4
        assert followers("line end")[0].units.split(", ")[1] in ("input", "forget", "output")
        (in_quotes,), (in_brackets,) = ([cell[text.index(a) + 1:text.index(b, text.index(a) + 1)].mean()] for a, b in (
            '""', "()"))
        assert in_quotes * best.correlation > 0 > in_brackets * best.correlation
        assert without_one["letters"] < 0.1 < min(without_one['"'], without_one[")"])
        assert all(2 * without_one[kind] < without_crowd[kind] for kind in '")')
        assert forget[is_space].mean() < forget[~is_space].mean() - 0.1
        assert max(shares.values()) > 0.3
    """,
    "5-vanishing-gradients": """
        assert 1e6 * max(ratios["Elman"], ratios["GRU"]) < ratios["LSTM"] < 1e-3
        assert of_bias[0] < 1e-9 < of_bias[1] < 0.01 < 0.1 < min(of_bias[3], of_bias[5])
        assert found["elman"].loss > 1.8
        assert found["gru"].loss < found["lstm"].loss < 1.5
        first_to_last = {kind: (of.untrained[0] / of.untrained[-1], of.trained[0] / of.trained[-1])
                         for kind, of in found.items()}
        assert min(first_to_last, key=lambda kind: first_to_last[kind][0]) == "gru"
        assert min(first_to_last["gru"][1], first_to_last["lstm"][1]) > 0.01 > first_to_last["elman"][1]
    """,
    "6-from-elmo-to-bert": """
        def near(word, count):
            return {found.word for found in vectors.neighbors(word, count)}
        assert near("fox", 2) == {"dog", "owl"} and near("lamp", 2) == {"wall", "stamp"}
        assert near("seal", 2) == {"bat", "mole"}
        for one, sense in zip(filled, ("animal", "thing"), strict=True):
            assert {fill.token for fill in one.masks[0]} <= set(NOUNS[sense])
        assert abs(cosines["skip-gram"][0] - 1) < 1e-3 and abs(cosines["skip-gram"][1] - 1) < 1e-3
        assert all(1 - 0.1 > same > other + 0.1 for same, other in (cosines["ELMo"], cosines["BERT"]))
        assert 0.6 < right["ELMo"] < right["BERT"] and right["BERT"] > 0.9
    """,
    "course-solutions": """
        assert perplexity["grammar"] < perplexity["LSTM"] < 1.1 * perplexity["grammar"] < 0.9 * perplexity["bigrams"]
        assert of_bigrams < 3 < 4 < of_lstm
        assert torch.allclose(y[0, 1], h, atol=1e-5)
        assert counted == 1600
        assert tuple(viterbi[0].tolist()) == paths[0] != greedy
        assert abs(by_hand - by_crf) < 1e-6
        assert difference < 1e-9 and np.abs(shuffled - whole[order]).max() < 1e-9
        assert right["bigrams"] < 0.9 < min(right["LSTM"], right["masked"])
        assert found_scores.exact_match > 90
        assert precision(expected, expected, 2) == 1 > precision("miro gral zor lumo nit okate", expected, 2)
    """,
}
"""Assertions of the results that the text of each notebook states, over the names in its cells."""

each_book = pytest.mark.parametrize("path", BOOKS, ids=lambda path: path.stem)


def cells(path: Path, kind: str) -> list[dict[str, Any]]:
    return [cell for cell in EXECUTE["read"](path)["cells"] if cell["cell_type"] == kind]


def source(cell: dict[str, Any]) -> str:
    return "".join(cell["source"])


@each_book
def test_outputs_are_kept_and_light(path: Path) -> None:
    assert path.stat().st_size < MAX_UNIT_BYTES
    code = cells(path, "code")
    assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1)), "make notebooks"
    outputs = [output for cell in code for output in cell["outputs"]]
    assert not [output for output in outputs if output["output_type"] == "error" or output.get("name") == "stderr"]
    texts = [str(output) for output in outputs]
    pictures = re.compile(r"'image/png': '[^']*'")
    assert all(map(MACHINE_DEPENDENT.search, ("in /a/b.txt", "C:\\\\a", "2026-11-25", "at 10:11:12")))
    assert not [match[0] for text in texts if (match := MACHINE_DEPENDENT.search(pictures.sub("", text)))]


KEYS = {
    "stream": {"output_type", "name", "text"},
    "display_data": {"output_type", "data", "metadata"},
    "execute_result": {"output_type", "data", "metadata", "execution_count"},
}
"""The keys of outputs in nbformat 4.5, which allows no others."""


@each_book
def test_outputs_have_the_keys_of_their_format(path: Path) -> None:
    book = EXECUTE["read"](path)
    outputs = [output for cell in book["cells"] for output in cell.get("outputs", ())]
    assert [output for output in outputs if output.keys() != KEYS[output["output_type"]]] == []
    if find_spec("nbformat") is not None:
        import_module("nbformat").validate(book)


@each_book
def test_notebooks_import_only_public_names(path: Path) -> None:
    known = set(public())
    for cell in cells(path, "code"):
        for node in ast.walk(ast.parse(source(cell))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("ensue"):
                names = {f"{node.module}.{alias.name}" for alias in node.names}
                assert node.module == "ensue.nn" or names <= known


@each_book
def test_links_of_notebooks_exist(path: Path) -> None:
    links = re.findall(r"\]\(([^)\s]+)\)", "".join(map(source, cells(path, "markdown"))))
    assert not [link for link in links if not (path.parent / link.partition("#")[0]).exists()]


@pytest.mark.slow
@each_book
def test_notebooks_run_and_their_claims_hold(path: Path, tmp_path: Path) -> None:
    if missing := [name for name in ("nbconvert", "ipykernel") if find_spec(name) is None]:
        pytest.skip(f"{' and '.join(missing)}: not installed; make .venv/.installed-notebooks")
    try:
        EXECUTE["executed"](EXECUTE["read"](path), tmp_path, last=dedent(CLAIMS[path.stem]))
    except subprocess.CalledProcessError as error:
        pytest.fail(error.stderr)
