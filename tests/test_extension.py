"""Other packages add layers, tasks, formats, recipes and trackers; a broken or missing one is an error of one line.

A package declares its entries in entry-point groups of ensue or in one `Extension`.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import ensue
from ensue.cli import command_line
from ensue.data.corpus.columns import ColumnSource
from ensue.data.examples import DocumentSource, PairSource
from ensue.data.examples.layout import DocumentChoice
from ensue.data.sentences.source import SentenceSource
from ensue.errors import DataError, EnsueError, RecipeError
from ensue.extension import extensions, find_entry
from ensue.extensions.experiments.trackers import CsvFile
from ensue.inspection.page import Inspection
from ensue.library import load
from ensue.models.build_text import build_language_model
from ensue.recipe import read_recipe, recipe_names
from ensue.runs.directory import RunDirectory
from ensue.tasks import has_task, task_entries, task_entry
from ensue.trackers import trackers_of
from ensue.trackers.tracker import Tracker

MODULE = """
from typing import Literal
from ensue.models.specification import GuestEncoder
from ensue.nn import Elman
from ensue.tasks import task_entry
from ensue.extensions.experiments.trackers import CsvFile
from ensue.inspection.page import Section

class Small(GuestEncoder):
    kind: Literal["small"]
    leak: float = 0.5

    def layer(self, d_in):
        return Elman(d_in, self.d_model)

class Copied(CsvFile):
    name = "copied"

TASK = task_entry("language-modeling")

def greet(name: str) -> None:
    "Greet somebody."
    print("hello,", name)

def sections(inspection):
    yield Section.plain("A heading of another package", str(len(inspection.title)))

def rows(path):
    for line in path.read_text().splitlines():
        label, text = line.split("|")
        words = text.split()
        yield {"text": text, "label": label, "words": words, "labels": [label] * len(words), "target": label}
"""
RECIPE = '[encoder]\nkind = "small"\nleak = 0.25\nd_model = 8\n[train]\nsteps = 3\n'
ENTRIES = {
    "layers": {"small": "small_guest:Small", "gone": "small_guest_of_old:Gone", "number": "small_guest:RECIPES"},
    "tasks": {"small-task": "small_guest:TASK", "bad-task": "small_guest:Small"},
    "recipes": {"small-recipe": "small_guest", "no-recipe": "small_guest", "gone-recipe": "small_guest_of_old"},
    "trackers": {"copied": "small_guest:Copied", "csv": "small_guest:Copied"},
    "formats": {"bar": "small_guest:rows", "old": "small_guest_of_old:rows"},
}


DECLARED = f"""
from ensue.extension import Extension
EXTENSION = Extension(
    name="small", sections={{"small": "small_guest:sections"}},
    commands={{"greet": "small_guest:greet", "train": "small_guest:greet", "old": "small_guest_of_old:f"}},
    names={{"load": "small_guest:greet"}}, **{ENTRIES!r}
)
"""
GROUPS = [
    line
    for group, names in ENTRIES.items()
    for line in (f"[ensue.{group}]", *(f"{name} = {place}" for name, place in names.items()))
]


def installed(site_packages: Path, kind: str) -> Path:
    """Install the package in `site_packages` and return its folder."""
    folder, facts = site_packages / "small_guest", site_packages / "small_guest-0.2.dist-info"
    folder.mkdir()
    facts.mkdir()
    lines = GROUPS if kind == "groups" else ["[ensue.extensions]", "small = small_guest.declared:EXTENSION"]
    metadata = "Metadata-Version: 2.1\nName: small-guest\nVersion: 0.2\n"
    for path, text in (
        (folder / "__init__.py", MODULE), (folder / "small-recipe.toml", RECIPE), (folder / "declared.py", DECLARED),
        (facts / "METADATA", metadata), (facts / "entry_points.txt", "\n".join(lines)),
    ):  # fmt: skip
        path.write_text(text, encoding="utf-8")
    return folder


@pytest.fixture(scope="module", params=["groups", "extension"])
def kept(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A package that all tests share, since finding packages and reading a new layer takes time."""
    yield installed(tmp_path_factory.mktemp(request.param), request.param)
    for name in GUESTS:
        sys.modules.pop(name, None)


@pytest.fixture
def package(kept: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    command_line()  # cached without the commands of this package
    monkeypatch.syspath_prepend(kept.parent)
    return kept


GUESTS = ("small_guest", "small_guest.declared")


@pytest.mark.usefixtures("package")
def test_a_layer_has_keys_of_its_own_in_every_recipe_and_is_built() -> None:
    recipe = read_recipe("char-lstm", {"encoder.kind": "small", "encoder.leak": 0.25, "encoder.num_layers": 2})
    assert recipe.encoder.leak == 0.25
    assert recipe.needs == ["small-guest>=0.2"]
    assert 'kind = "small"' in recipe.to_toml()
    assert read_recipe(recipe) == recipe
    model = build_language_model(recipe.tokens, recipe.encoder, vocabulary_size=5)
    assert model.loss(torch.zeros(2, 3, dtype=torch.long), torch.zeros(2, 3, dtype=torch.long))[0].mean.isfinite()
    both = read_recipe("translate-lstm", {"encoder.kind": "small", "decoder.kind": "small"})
    assert (both.encoder.leak, both.decoder.leak) == (0.5, 0.5)
    assert read_recipe("tag-lstm", {"encoder.kind": "small"}).encoder.kind == "small"


@pytest.mark.usefixtures("package")
@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"encoder.leek": 1.0}, 'char-lstm: unknown key "encoder.leek" in encoder (small); did you mean "leak"?'),
        ({"encoder.kind": "smal"}, 'char-lstm: no encoder "smal"; did you mean "small"?; known: .*, small'),
        (
            {"encoder.kind": "gone"},
            'char-lstm: the layer "gone" of the package small-guest 0.2 cannot be imported: '
            "ModuleNotFoundError: No module named 'small_guest_of_old'",
        ),
        ({"encoder.kind": "number"}, 'char-lstm: the layer "number" of the package small-guest 0.2 cannot be imported'),
        (
            {"task": "bad-task"},
            'char-lstm: the task "bad-task" of .*: expected a TaskEntry at small_guest:Small, found',
        ),
        ({"task": "small-tusk"}, 'char-lstm: no task "small-tusk"; did you mean "small-task"?'),
        ({"needs": ["small-guest>=0.3"]}, "char-lstm: needs the package small-guest>=0.3, but 0.2 is installed"),
        ({"needs": ["other-guest"]}, "char-lstm: needs the package other-guest, which is not installed: pip install"),
        ({"needs": ["!"]}, 'char-lstm: needs: expected a package, such as "ensue-minimal>=0.1", found'),
    ],
)
def test_mistakes_in_settings_are_errors_of_one_line(settings: dict[str, object], message: str) -> None:
    with pytest.raises(RecipeError, match=message.replace("?", r"\?").replace("(", r"\(").replace(")", r"\)")):
        read_recipe("char-lstm", {"encoder.kind": "small"} | settings)


@pytest.mark.usefixtures("package")
def test_a_recipe_is_found_by_its_name_and_broken_ones_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert recipe_names()[-3:] == ["gone-recipe", "no-recipe", "small-recipe"]
    assert read_recipe("small-recipe").needs == ["small-guest>=0.2"]
    command_line()(["recipes"], standalone_mode=False)
    shown = capsys.readouterr()
    assert "small-recipe" in shown.out
    assert "char-lstm" in shown.out
    first, second = shown.err.splitlines()
    assert 'the recipe "gone-recipe" of the package small-guest 0.2 cannot be imported' in first
    assert "no readable no-recipe.toml in small_guest of small-guest 0.2" in second


@pytest.mark.usefixtures("package")
def test_a_task_of_a_package_is_listed() -> None:
    assert has_task("small-task")
    assert task_entry("small-task") is task_entry("language-modeling")
    with pytest.warns(match='the task "bad-task" of the package small-guest 0.2: expected a TaskEntry'):
        assert sum(entry is task_entry("language-modeling") for entry in task_entries()) == 2


@pytest.mark.usefixtures("package")
def test_a_tracker_is_found_by_its_name() -> None:
    assert [tracker.name for tracker in trackers_of(["csv", "copied"])] == ["csv", "copied"]
    with pytest.raises(EnsueError, match='no tracker "copid"; did you mean "copied"'):
        trackers_of(["copid"])


def test_a_run_names_the_missing_package_that_it_needs(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path / "run")
    run.path.mkdir()
    run.write({
        "recipe.toml": 'task = "parity"\nneeds = ["ensue-parity>=1.2"]\n',
        "config.json": '{"format_version": 3, "ensue": "1", "task": "parity", "text": "", "runtime": {}}',
    })  # fmt: skip
    message = (
        f"{run.path}: needs the package ensue-parity>=1.2, which is not installed: pip install 'ensue-parity>=1.2'"
    )
    with pytest.raises(EnsueError) as raised:
        assert run.entry
    assert str(raised.value) == message


@pytest.mark.usefixtures("package")
def test_a_format_reads_labels_classes_pairs_and_texts(tmp_path: Path) -> None:
    path = tmp_path / "a.bar"
    path.write_text("pos|good film\nneg|bad\n", encoding="utf-8")
    documents = list(DocumentSource(path, DocumentChoice(("text",), "label")))
    assert [(document.texts, document.labels) for document in documents] == [
        (("good film",), ("pos",)),
        (("bad",), ("neg",)),
    ]
    sentences = SentenceSource(path)
    assert [(sentence.words, sentences.format.labels(sentence)) for sentence in sentences] == [
        (("good", "film"), ("pos", "pos")),
        (("bad",), ("neg",)),
    ]
    pairs = PairSource(path, sources=["text"], targets=["target"])
    assert [(pair.sources, pair.targets) for pair in pairs] == [(("good film",), ("pos",)), (("bad",), ("neg",))]
    assert "".join(ColumnSource(path, "text").chunks()) == "good film\nbad\n"


@pytest.mark.usefixtures("package")
def test_a_file_that_a_format_cannot_read_is_an_error_of_one_line(tmp_path: Path) -> None:
    path = tmp_path / "a.bar"
    path.write_text("good film", encoding="utf-8")
    with pytest.raises(
        DataError, match=r"a.bar: cannot be read by the package small-guest 0.2: ValueError: not enough"
    ):
        list(DocumentSource(path))
    old = path.rename(tmp_path / "a.old")
    with pytest.raises(EnsueError, match=r'the format "old" of the package small-guest 0.2 cannot be imported'):
        list(DocumentSource(old))


@pytest.mark.parametrize("kept", ["extension"], indirect=True)
def test_commands_and_sections_of_pages_are_added(package: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.warns(match='the command "old" of the package small-guest 0.2 cannot be imported'):
        command_line.__wrapped__("greet")(["greet", "Ann"], standalone_mode=False)
    assert capsys.readouterr().out == "hello, Ann\n"
    command_line.__wrapped__()(["--help"], standalone_mode=False)
    shown = capsys.readouterr().out
    assert "\n  greet       Greet somebody.\n" in shown
    assert "\n  train       Train a model on your data.\n" in shown
    assert ensue.load is load
    assert find_entry("tracker", "csv", Tracker) is CsvFile
    assert "A heading of another package" in Inspection("a title", view=None).page


@pytest.mark.parametrize(
    "wrong", ["5", "Extension(name=5)", "Extension(name='a', tasks='b')", "Extension(name='a', tasks={'b': 5})",
              "Extension(name='a', needs='b')", "Extension(name='a', methods={'b': 'c'})", "1 / 0"],
)  # fmt: skip
def test_a_wrong_declaration_warns_in_one_line(tmp_path: Path, wrong: str, monkeypatch: pytest.MonkeyPatch) -> None:
    declared = installed(tmp_path, "extension") / "declared.py"
    declared.write_text(f"from ensue.extension import Extension\nEXTENSION = {wrong}", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    for name in GUESTS:
        monkeypatch.delitem(sys.modules, name, raising=False)
    with pytest.warns(match='the extension "small" of the package small-guest 0.2'):
        assert "small" not in extensions()
