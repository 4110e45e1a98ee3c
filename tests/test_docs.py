"""The pages tell the truth: their code runs; their commands, links, paths, signatures and tree are there."""

import ast
import glob
import inspect
import io
import json
import re
import runpy
import shlex
import shutil
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple, get_args

import pytest
import typer
from pydantic import BaseModel

import ensue.library
import ensue.nn
from ensue.cli import app
from ensue.metrics.classification import ClassificationTally
from ensue.metrics.labeling import LabelingTally
from ensue.metrics.language import LanguageScores
from ensue.recipe import Recipe, read_recipe, recipe_names, validate_recipe
from ensue.tasks import TASKS, task_entry
from ensue.tasks.classification import pipeline as classification_pipeline
from ensue.tasks.classification.pipeline import ClassificationPipeline
from ensue.tasks.labeling import tagged_sentence
from ensue.tasks.labeling.pipeline import LabelingPipeline
from ensue.tasks.language_modeling.pipeline import LanguagePipeline
from ensue.tasks.pipeline import Pipeline, Predictor
from ensue.training.run import train_run
from page_data import RUNS, TEXT, tiny, write_data
from training.tiny_texts import without_pictures

REPOSITORY = Path(__file__).resolve().parents[1]
PAGES = sorted(
    path for path in [*REPOSITORY.glob("*.md"), *(REPOSITORY / "docs").rglob("*.md")] if "_build" not in path.parts
)
README = REPOSITORY / "README.md"
BENCHMARKS_PAGE = REPOSITORY / "docs" / "benchmarks.md"
RECIPES_PAGE = REPOSITORY / "docs" / "recipes.md"
RUN_HERE = {"data", "evaluate", "generate", "inspect", "predict", "recipes", "score"}
"""Commands that are run, on a small model; the others train, and are parsed."""
TESTED_ELSEWHERE = "docs/adding-a-task.md"
"""Its task is not in `TASKS`; tests/cli/test_adding_a_task.py runs the page."""
NOT_YET = {"docs/_build", "src/ensue/tasks/parity"}
"""Paths that whoever follows a page makes."""
SAID = {"inspect"}
"""Of them, those that have nothing for stdout and say on stderr what they did."""

DRAWN = ("run", "mood")
"""Those with pictures, the first ones."""


class Block(NamedTuple):
    """A fenced block of a page: its language, its first line's number and what is in it."""

    language: str
    line: int
    text: str


def blocks(page: Path, *languages: str) -> Iterator[Block]:
    text = page.read_text(encoding="utf-8")
    for match in re.finditer(r"^```(.*)\n((?:.*\n)*?)```$", text, re.MULTILINE):
        if match[1] in languages:
            yield Block(match[1], text.count("\n", 0, match.start(2)) + 1, match[2])


def prose(page: Path) -> str:
    """A page without its blocks."""
    return re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)


def name_of(page: Path) -> str:
    return page.relative_to(REPOSITORY).as_posix()


def pages(*languages: str) -> Any:
    """The pages that have such a block, as parameters of a test."""
    found = [page for page in PAGES if name_of(page) != TESTED_ELSEWHERE and any(blocks(page, *languages))]
    return pytest.mark.parametrize("page", found, ids=name_of)


def name_of_recipe(block: Block) -> str:
    """The file name in the comment that a recipe begins with, or ""."""
    match = re.match(r"# (\S+\.toml)\n", block.text)
    return match[1] if match else ""


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory, new_cache: Callable[[], Path]) -> Path:
    """A folder with the data that the pages speak of, and with trained runs."""
    folder = tmp_path_factory.mktemp("docs")
    write_data(folder)
    for block in (block for page in PAGES for block in blocks(page, "toml")):
        if name := name_of_recipe(block):
            (folder / name).write_text(block.text, encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ENSUE_CACHE", str(new_cache()))
        patch.chdir(folder)
        for out, (recipe, data, settings) in RUNS.items():
            train_run(tiny(read_recipe(recipe, {"data.train": data, **settings})), out, threads=1)
            if out == DRAWN[-1]:
                without_pictures(patch)
    return folder


@pytest.fixture
def folder(prepared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of it to work in, where whatever is trained is tiny."""
    shutil.copytree(prepared, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)

    def train_tiny(recipe: Recipe, out: str, **options: Any) -> object:
        return train_run(tiny(recipe), out, **options | {"threads": 1})

    monkeypatch.setattr("ensue.library.train_run", train_tiny)
    without_pictures(monkeypatch)
    return tmp_path


@pytest.mark.usefixtures("folder")
@pages("python")
def test_code_runs(page: Path) -> None:
    namespace: dict[str, Any] = {"__name__": "page"}
    for block in blocks(page, "python"):
        lines = "\n" * (block.line - 1) + block.text  # so that a traceback names the page's own line
        exec(compile(lines, str(page), "exec", dont_inherit=True), namespace)


def commands(page: Path) -> Iterator[list[str]]:
    """The words of each command in a page's blocks, the parts of a pipe by themselves, without where it writes to."""
    for block in blocks(page, "sh", "console"):
        for line in block.text.replace("\\\n", " ").splitlines():
            if block.language == "console" and not line.startswith("$ "):
                continue
            lexer = shlex.shlex(line.removeprefix("$ "), posix=True, punctuation_chars="|>")
            lexer.whitespace_split = True
            words: list[str] = []
            for word in [*lexer, "|"]:
                if word == "|" and words:
                    yield words[: words.index(">")] if ">" in words else words
                words = [] if word == "|" else [*words, word]


def parsed(arguments: list[str]) -> tuple[str, dict[str, Any]]:
    """The command and its options; an error of the command line where there is no such thing."""
    group: Any = typer.main.get_command(app)
    context = group.make_context("ensue", list(arguments))
    name, command, rest = group.resolve_command(context, [*context._protected_args, *context.args])
    return name, command.make_context(name, rest, parent=context).params


@pytest.mark.usefixtures("folder")
@pages("sh", "console")
def test_commands_are_there(page: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    targets = re.findall(r"^([a-z]+):", (REPOSITORY / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    for program, *arguments in commands(page):
        assert program in ("ensue", "make", "python", "echo")
        if program == "make":
            assert set(arguments) <= set(targets)
        if program != "ensue":
            continue
        name, options = parsed(arguments)
        if name == "train" and options["recipe"]:
            read_recipe(options["recipe"], options["settings"] or [])
            for data in filter(None, (options[part] for part in ("train", "valid", "test"))):
                assert glob.glob(data), f"the pages speak of {data}, which no test writes"
        if name in RUN_HERE:
            monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(TEXT.encode())))
            app(arguments, standalone_mode=False)
            said = capsys.readouterr()
            assert said.err if name in SAID else said.out


@pages("console")
@pytest.mark.usefixtures("folder")
def test_what_is_shown_is_what_comes_out(page: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for block in blocks(page, "console"):
        command, _, shown = block.text.partition("\n")
        program, *arguments = shlex.split(command.removeprefix("$ "))
        assert program == "ensue"
        app(arguments, standalone_mode=False)
        assert capsys.readouterr().out == shown, f"{name_of(page)}:{block.line}"


@pages("toml")
def test_recipes_in_the_pages_are_recipes(page: Path) -> None:
    for block in blocks(page, "toml"):
        validate_recipe(tomllib.loads(block.text), where=f"{name_of(page)}:{block.line}")


@pytest.mark.parametrize("arguments", [["trian"], ["score", "run", "--top-k", "3"], ["evaluate", "run", "--jsn"]])
def test_a_command_that_is_not_there_is_noticed(arguments: list[str]) -> None:
    with pytest.raises(typer.BadParameter.__base__):  # type: ignore[arg-type]
        parsed(arguments)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_and_paths_lead_somewhere(page: Path) -> None:
    links = [link for link in re.findall(r"\]\(([^)\s]+)\)", prose(page)) if "://" not in link]
    paths = re.findall(r"`((?:src|tests|docs|benchmarks)/[\w/.-]+)`", prose(page))
    missing = [link for link in links if not leads(page, link)]
    missing += [path for path in paths if path not in NOT_YET and not (REPOSITORY / path).exists()]
    assert not missing


def leads(page: Path, link: str) -> bool:
    """Whether there is such a file, and, where the link names one, such a heading in it."""
    name, _, anchor = link.partition("#")
    target = page.parent / name if name else page
    return target.exists() and (not anchor or anchor in anchors(target))


def anchors(page: Path) -> set[str]:
    """The names under which GitHub and MyST know the headings of a page."""
    headings = re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_a_wrong_link_is_noticed() -> None:
    assert leads(RECIPES_PAGE, "labeling.md#the-head")
    assert not leads(RECIPES_PAGE, "labeling.md#the-heat")
    assert not leads(RECIPES_PAGE, "labelling.md")


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_commands_in_sentences_are_there(page: Path) -> None:
    known = set(typer.main.get_command(app).commands)  # type: ignore[attr-defined]
    assert set(re.findall(r"`ensue ([a-z]+)", prose(page))) <= known


def first_cells(page: Path, head: str) -> list[str]:
    """What stands between backticks in the first column of the tables whose first column is called `head`."""
    text = page.read_text(encoding="utf-8")
    tables = re.findall(rf"^\| {re.escape(head)} \|.*\n\|[-|]+\n((?:\|.*\n)+)", text, re.MULTILINE)
    return [
        name for table in tables for row in table.splitlines() for name in re.findall(r"`([^`]+)`", row.split("|")[1])
    ]


def test_every_recipe_is_listed_and_nothing_else() -> None:
    assert sorted(first_cells(RECIPES_PAGE, "recipe")) == recipe_names()


def section(page: Path, heading: str) -> str:
    """The text of a page from a heading of the second level to the next one."""
    match = re.search(rf"^## {re.escape(heading)}\n(.*?)(?=^## |\Z)", page.read_text(encoding="utf-8"), re.M | re.S)
    assert match, f"{name_of(page)} has no section {heading!r}"
    return match[1]


NUMBER = r"\d[\d,]*\.\d+|\d+,\d{3}"


@pytest.mark.parametrize(("page", "heading"), [("README.md", "Numbers beside peers"), ("docs/index.md", "In numbers")])
def test_numbers_of_the_first_pages_are_among_the_measurements(page: str, heading: str) -> None:
    """They are said twice; a new measurement has to change both."""
    measured = set(re.findall(NUMBER, BENCHMARKS_PAGE.read_text(encoding="utf-8")))
    said = set(re.findall(NUMBER, section(REPOSITORY / page, heading)))
    assert len(said) > 5
    assert not {number for number in said - measured if number.replace(",", "") not in measured}


def test_every_page_is_in_the_index() -> None:
    index = REPOSITORY / "docs" / "index.md"
    listed = "\n".join(block.text for block in blocks(index, "{toctree}")).splitlines()
    pages = [
        page.relative_to(index.parent).with_suffix("").as_posix() for page in PAGES if index.parent in page.parents
    ]
    assert sorted([line for line in listed if line and not line.startswith(":")] + ["index"]) == sorted(pages)


def test_every_key_of_a_recipe_is_explained() -> None:
    script = runpy.run_path(str(REPOSITORY / "docs" / "recipe_keys.py"))
    page = RECIPES_PAGE.read_text(encoding="utf-8")
    assert page == script["written"](page), "python docs/recipe_keys.py brings it up to date"


def parts(schema: type[BaseModel]) -> Iterator[type[BaseModel]]:
    """A schema and the tables that stand in it, with the classes that they are derived from."""
    yield from (part for part in schema.__mro__ if issubclass(part, BaseModel) and part is not BaseModel)
    for field in schema.model_fields.values():
        for choice in (field.annotation, *get_args(field.annotation)):
            if isinstance(choice, type) and issubclass(choice, BaseModel):
                yield from parts(choice)


def test_every_table_of_a_recipe_is_explained() -> None:
    script = runpy.run_path(str(REPOSITORY / "docs" / "recipe_keys.py"))
    explained = {model for _, model in script["TABLES"]}
    found = {part for task in TASKS for part in parts(task_entry(task).recipe)}
    for part in {part for part in found if part is Recipe or not issubclass(part, Recipe)}:
        assert part in explained or not list(script["own_fields"](part)), part


def parameters(function: Any) -> list[tuple[str, Any, Any]]:
    found = inspect.signature(function).parameters.values()
    return [(p.name, p.kind, p.default) for p in found if p.name != "self"]


def as_written(arguments: str) -> list[tuple[str, Any, Any]]:
    namespace: dict[str, Any] = {}
    exec(f"def function({arguments}): ...", namespace)
    return parameters(namespace["function"])


INTERFACE = {
    "": SimpleNamespace(**vars(tagged_sentence) | vars(classification_pipeline)),
    "ensue": ensue.library,
    "ensue.recipe": sys.modules["ensue.recipe"],
    "Pipeline": Pipeline,
    "Predictor": Predictor,
    "LanguagePipeline": LanguagePipeline,
    "LabelingPipeline": LabelingPipeline,
    "ClassificationPipeline": ClassificationPipeline,
}
API_PAGE = REPOSITORY / "docs" / "api.md"
ARCHITECTURE = REPOSITORY / "docs" / "architecture.md"


def documented() -> list[tuple[str, str, str]]:
    """Owner, name and arguments of what the headings of docs/api.md describe."""
    headings = re.findall(r"^### `([\w.]+)\((.*)\)`$", prose(API_PAGE), re.MULTILINE)
    return [(*name.rpartition(".")[::2], arguments) for name, arguments in headings]


def test_the_interface_is_as_written() -> None:
    """The headings of docs/api.md are the signatures."""
    assert len(documented()) > 25
    for owner, name, arguments in documented():
        assert as_written(arguments) == parameters(getattr(INTERFACE[owner], name)), f"{owner}.{name}"


@pytest.mark.parametrize("owner", [owner for owner in INTERFACE if owner.endswith("Pipeline")])
def test_every_method_of_a_pipeline_is_written_down(owner: str) -> None:
    """With those of every pipeline, which are written down once."""
    methods = inspect.getmembers(INTERFACE[owner], inspect.isfunction)
    bases = {base.__name__ for base in INTERFACE[owner].__mro__}
    written = {name for other, name, _ in documented() if other in (owner, *bases)}
    assert {name for name, _ in methods if not name.startswith("_")} == written


SCORES: dict[str, dict[str, Any]] = {
    "evaluation.md": LanguageScores(total_nats=1.0, tokens=1, characters=1).as_json(),
    "labeling.md": LabelingTally(spans=True).scores().as_json(),
    "classification.md": ClassificationTally(["a", "b"]).scores().as_json(),
}


@pytest.mark.parametrize("page", list(SCORES))
def test_every_score_is_explained(page: str) -> None:
    assert set(first_cells(REPOSITORY / "docs" / page, "key of `evaluate --json`")) == SCORES[page].keys()


def test_a_run_directory_is_as_written(prepared: Path) -> None:
    page = REPOSITORY / "docs" / "run-directory.md"
    files = {path.name for run in RUNS for path in (prepared / run).iterdir() if not path.name.startswith(".")}
    assert {name.partition("/")[0] for name in first_cells(page, "file")} == files
    config = {key for run in RUNS for key in json.loads((prepared / run / "config.json").read_text(encoding="utf-8"))}
    assert set(first_cells(page, "key of `config.json`")) == config
    records = [
        json.loads(line)
        for run in RUNS
        for line in (prepared / run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    ]
    assert set(first_cells(page, "key of `metrics.jsonl`")) == {key for record in records for key in record}


def test_layers_are_as_written() -> None:
    """So are the calls of layers in the prose of their pages, where nothing is left out of them."""
    checked = set()
    for page in (REPOSITORY / "docs" / "layers").glob("*.md"):
        for name, arguments in re.findall(r"`(?:ensue\.nn\.)?([A-Z]\w+)\(([^`]*)\)`", prose(page)):
            if hasattr(ensue.nn, name) and "..." not in arguments:
                assert as_written(arguments) == parameters(getattr(ensue.nn, name)), f"{name} in {page.name}"
                checked.add(name)
    assert {"LSTM", "GRU", "Elman", "Window", "Transformer", "MultiHeadAttention", "LinearChainCRF"} <= checked
    assert {"CharacterLSTM", "CharacterCNN", "MeanPooling", "AttentionPooling"} <= checked


def test_the_tree_is_the_repository() -> None:
    script = runpy.run_path(str(REPOSITORY / "docs" / "tree.py"))
    page = ARCHITECTURE.read_text(encoding="utf-8")
    assert page == script["written"](page), "python docs/tree.py brings it up to date"


def test_every_file_is_in_the_tree() -> None:
    tree = runpy.run_path(str(REPOSITORY / "docs" / "tree.py"))["tree"]()
    names = {path.name for path in (REPOSITORY / "src" / "ensue").rglob("*.py") if path.name != "__init__.py"}
    assert names <= {line.split()[0] for line in tree.splitlines()}
    assert not [line for line in tree.splitlines()[1:] if len(line.split()) < 2], "a file says nothing of itself"


def test_the_readme_is_short() -> None:
    assert len(README.read_text(encoding="utf-8").splitlines()) <= 180


def test_code_blocks_say_their_language() -> None:
    """A block without one would not be run, and nobody would notice."""
    known = ("python", "sh", "console", "text", "toml", "{toctree}")
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        fences = re.findall(r"^```(\S*).*$", text, re.MULTILINE)
        assert {fence.partition(" file=")[0] for fence in fences[::2]} <= set(known), name_of(page)
        assert set(fences[1::2]) <= {""}, name_of(page)
        for block in blocks(page, "python"):
            ast.parse(block.text)
