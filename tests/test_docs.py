"""The code of the pages runs, and their commands, names, links and paths exist."""

import ast
import glob
import io
import json
import re
import shlex
import shutil
import sys
import tomllib
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple
from xml.etree import ElementTree

import pytest
import typer

from conftest import is_thorough
from ensue.cli import command_line
from ensue.engine import executing
from ensue.errors import EnsueError
from ensue.library import load
from ensue.notices import Notice
from ensue.recipe import Recipe, read_recipe, validate_recipe
from ensue.training.run import train_run
from page_data import RUNS, TEXT, tiny, write_data
from pages import PAGES, RECIPES_PAGE, REPOSITORY, TESTED_ELSEWHERE, Block, blocks, first_cells, name_of, pages, prose
from training.tiny_texts import with_pictures

RUN_HERE = {"data", "embed", "evaluate", "export", "generate", "inspect", "neighbors", "predict", "recipes", "score"}
"""Commands that the tests run on a small model; the others, which train or serve, are only parsed."""
QUICK = ("README.md", "docs/adding-a-layer.md", "docs/layers/lstm.md")
"""The pages that are run by default; the slow tests run all."""
NOT_YET = {"docs/_build", "src/ensue/tasks/parity"}
"""Paths that a reader who follows a page creates."""
ELSEWHERE = ("py", "json", "dockerfile", "nginx", "yaml", "bash", "c", "rust", "go", "js")
"""Languages of blocks that test_pages.py of serving and test_page.py of C run."""
PRINTS_TO_STDERR = {"export", "inspect"}
"""Commands of RUN_HERE that print only to stderr."""

DRAWN = ("run", "mood")
"""Runs with pictures, which only slow tests need."""

commands_of = cache(typer.main.get_command)
"""Cached, since typer derives the commands from signatures."""


def name_of_recipe(block: Block) -> str:
    """Return the file name in the comment at the beginning of a recipe, or ""."""
    match = re.match(r"# (\S+\.toml)\n", block.text)
    return match[1] if match else ""


class Prepared(NamedTuple):
    """A folder with the data that the pages name, and with the runs trained so far."""

    folder: Path
    cache: Path
    draws: bool

    def run(self, name: str) -> Path:
        """Return the run of this name, trained at the first call."""
        recipe, data, settings = RUNS[name]
        for origin in RUNS.keys() & set(settings.values()):
            self.run(origin)
        out = self.folder / name
        if not out.exists():
            with pytest.MonkeyPatch.context() as patch:
                patch.setenv("ENSUE_CACHE", str(self.cache))
                patch.chdir(self.folder)
                if self.draws and name in DRAWN:
                    with_pictures(patch)
                train_run(tiny(read_recipe(recipe, {"data.train": data, **settings})), out, threads=1)
        return out


@pytest.fixture(scope="module")
def prepared(
    tmp_path_factory: pytest.TempPathFactory, new_cache: Callable[[], Path], pytestconfig: pytest.Config
) -> Prepared:
    folder = tmp_path_factory.mktemp("docs")
    write_data(folder)
    for block in (block for page in PAGES for block in blocks(page, "toml")):
        if name := name_of_recipe(block):
            (folder / name).write_text(block.text, encoding="utf-8")
    return Prepared(folder, new_cache(), is_thorough(pytestconfig))


@pytest.fixture
def data(prepared: Prepared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the data, which is the working directory."""
    shutil.copytree(prepared.folder, tmp_path, dirs_exist_ok=True, ignore=shutil.ignore_patterns(*RUNS))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def folder(page: Path, prepared: Prepared, data: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The copy of the data with the runs that the page names. Models that the page trains are tiny."""
    text = "".join(block.text for block in blocks(page, "python", "sh", "console"))
    for name in RUNS:
        if re.search(rf"(?<![\w-]){name}(?![\w.-])", text):
            shutil.copytree(prepared.run(name), data / name)

    monkeypatch.setattr("ensue.training.run.train_run", _train_tiny)
    return data


@pytest.mark.sampled(1)
@pytest.mark.usefixtures("folder")
@pages("python", quick=QUICK)
def test_code_runs(page: Path) -> None:
    """Pages of layers run without compiled code, which the tests of the engine cover."""
    namespace: dict[str, Any] = {"__name__": "page"}
    with executing("plain") if page.parent.name == "layers" else nullcontext():
        for block in blocks(page, "python"):
            lines = "\n" * (block.line - 1) + block.text  # so that a traceback names the page's own line
            exec(compile(lines, str(page), "exec", dont_inherit=True), namespace)


def commands(page: Path) -> Iterator[list[str]]:
    """Yield the words of each command in a page's blocks; a pipe is several commands; redirections are left out."""
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
    """Return the command and its options; raise an error of typer if the command or an option does not exist."""
    group: Any = commands_of(command_line())
    context = group.make_context("ensue", list(arguments))
    name, command, rest = group.resolve_command(context, [*context._protected_args, *context.args])
    return name, command.make_context(name, rest, parent=context).params


def write_recipe_of_run(path: Path) -> None:
    """Write `recipe.toml` of a run in `RUNS` without training; do nothing for other paths."""
    if path.name == "recipe.toml" and path.parent.name in RUNS:
        recipe, _, settings = RUNS[path.parent.name]
        path.parent.mkdir(exist_ok=True)
        path.write_text(read_recipe(recipe, settings).to_toml(), encoding="utf-8")


@pytest.mark.sampled(3)
@pages("sh", "console")
def test_commands_and_their_options_exist(page: Path, data: Path) -> None:
    targets = re.findall(r"^([a-z]+):", (REPOSITORY / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    for program, *arguments in commands(page):
        assert program in ("ensue", "make", "python", "echo")
        if program == "make":
            assert set(arguments) <= set(targets)
        if program != "ensue":
            continue
        name, options = parsed(arguments)
        if name == "train" and not options["out"]:
            with pytest.raises(EnsueError, match=r"; recipe: [\s\S]*; (--)?out RUN trains it"):
                command_line()(arguments, standalone_mode=False)
        elif name == "train" and options["recipe"]:
            write_recipe_of_run(data / options["recipe"])
            read_recipe(options["recipe"], options["settings"] or [])
            values = [value for option in ("train", "valid", "test") for value in options[option] or []]
            paths = [path for value in values for path in value.split(",") if not path.startswith("hf:")]
            missing = [path for path in paths if not glob.glob(path)]
            assert not missing, f"no test writes {missing}, which a page names"


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*reading the text from this file")
@pytest.mark.usefixtures("folder")
@pages("sh", "console", quick=QUICK)
def test_commands_run(page: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    for program, *arguments in commands(page):
        if program != "ensue" or (name := parsed(arguments)[0]) not in RUN_HERE:
            continue
        if "--at-precision" in arguments:  # a model of a few steps cannot reach it; tests of the option do
            continue
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(TEXT.encode())))
        command_line()(arguments, standalone_mode=False)
        output = capsys.readouterr()
        assert output.err if name in PRINTS_TO_STDERR or "--out" in arguments else output.out


@pytest.mark.sampled(1)
@pages("console")
@pytest.mark.usefixtures("folder")
def test_commands_print_the_output_that_the_page_shows(page: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for block in blocks(page, "console"):
        command, _, shown = block.text.partition("\n")
        program, *arguments = shlex.split(command.removeprefix("$ "))
        assert program == "ensue"
        command_line()(arguments, standalone_mode=False)
        assert capsys.readouterr().out == shown, f"{name_of(page)}:{block.line}"


@pages("toml")
def test_recipes_in_the_pages_are_recipes(page: Path) -> None:
    for block in blocks(page, "toml"):
        validate_recipe(tomllib.loads(block.text), where=f"{name_of(page)}:{block.line}")


@pytest.mark.parametrize("arguments", [["trian"], ["score", "run", "--top-k", "3"], ["evaluate", "run", "--jsn"]])
def test_unknown_commands_and_options_are_detected(arguments: list[str]) -> None:
    with pytest.raises(typer.BadParameter.__base__):  # type: ignore[arg-type]
        parsed(arguments)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_and_paths_exist(page: Path) -> None:
    links = [link for link in re.findall(r"\]\(([^)\s]+)\)", prose(page)) if "://" not in link]
    paths = re.findall(r"`((?:src|tests|docs|benchmarks)/[\w/.-]+)`", prose(page))
    missing = [link for link in links if not exists(page, link)]
    missing += [path for path in paths if path not in NOT_YET and not (REPOSITORY / path).exists()]
    assert not missing


def exists(page: Path, link: str) -> bool:
    """Return whether the file of a link exists, with the heading if the link names one."""
    name, _, anchor = link.partition("#")
    target = page.parent / name if name else page
    return target.exists() and (not anchor or anchor in anchors(target))


def anchors(page: Path) -> set[str]:
    """Return the anchors that GitHub and MyST make of the headings of a page."""
    headings = re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_a_wrong_link_is_detected() -> None:
    assert exists(RECIPES_PAGE, "labeling-models.md#the-head")
    assert not exists(RECIPES_PAGE, "labeling-models.md#the-heat")
    assert not exists(RECIPES_PAGE, "labelling.md")


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_commands_in_sentences_exist(page: Path) -> None:
    known = {*commands_of(command_line()).commands, "pack"}  # type: ignore[attr-defined]  # of models/packing
    assert set(re.findall(r"`ensue ([a-z]+)", prose(page))) <= known


PACKAGE = REPOSITORY / "src" / "ensue"
OTHER_NAMES = {"__version__", "from_pretrained", "help", "len", "sampled"}
"""Names in sentences of the pages that no `def` or `class` of the package defines."""


def missing_names(text: str, names: set[str]) -> list[str]:
    """Return the missing names of a text: of `ensue.a.b` and `function(...)`, and of `name` in `a/file.py`."""
    missing = {*re.findall(r"`ensue(?:\.\w+)*\.(\w+)", text), *re.findall(r"`([a-z]\w*)\(", text)} - names
    for name, file in re.findall(r"`(?:\w+\.)*(\w+)`\s+in\s+`([\w/]+\.(?:py|c|h))`", text):
        paths = [*PACKAGE.rglob(file), *REPOSITORY.glob(file)]
        if not any(re.search(rf"\b{name}\b", path.read_text(encoding="utf-8")) for path in paths):
            missing.add(f"{name} in {file}")
    return sorted(missing)


def test_names_in_sentences_are_in_the_package() -> None:
    files = [*PACKAGE.rglob("*.py")]
    names = {name for path in files for name in re.findall(r"\b(?:def|class) (\w+)", path.read_text(encoding="utf-8"))}
    names |= {path.stem if path.stem != "__init__" else path.parent.name for path in files} | OTHER_NAMES
    for page in PAGES:
        if name_of(page) not in (*TESTED_ELSEWHERE, "docs/migration.md") and page.parent.name != "log":
            code = {name for block in blocks(page, "python") for name in re.findall(r"\w+", block.text)}
            assert not missing_names(prose(page), names | code), name_of(page)
    text = "`ensue.load`, `ensue.types.Growth`, `load_lines(state)`, `View` in `engine/program.py`, `Row` in `types.py`"
    assert missing_names(text, names) == ["Growth", "Row in types.py", "load_lines"]


@pytest.mark.slow
def test_the_page_of_run_directories_lists_all_files_and_keys(prepared: Prepared) -> None:
    page = REPOSITORY / "docs" / "run-directory.md"
    runs = [prepared.run(name) for name in RUNS]
    files = {path.name for run in runs for path in run.iterdir() if not path.name.startswith(".")}
    assert {name.partition("/")[0] for name in first_cells(page, "file")} == files
    config = {key for run in runs for key in json.loads((run / "config.json").read_text(encoding="utf-8"))}
    assert set(first_cells(page, "key of `config.json`")) == config
    records = [
        json.loads(line) for run in runs for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    ]
    assert set(first_cells(page, "key of `metrics.jsonl`")) == {key for record in records for key in record}


def test_code_blocks_name_their_language() -> None:
    """A block without a language would not be tested."""
    known = ("python", "sh", "console", "text", "toml", "{toctree}", "{eval-rst}", *ELSEWHERE)
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        fences = re.findall(r"^ *```(\S*).*$", text, re.MULTILINE)
        assert {fence.partition(" file=")[0] for fence in fences[::2]} <= set(known), name_of(page)
        assert set(fences[1::2]) <= {""}, name_of(page)
        for block in blocks(page, "python"):
            ast.parse(block.text)


def test_the_animation_of_the_terminal_is_small_and_loads_nothing() -> None:
    """The page shows the file as an image, so the animation must be in the styles of the file."""
    svg = (REPOSITORY / "docs" / "terminal.svg").read_text(encoding="utf-8")
    assert len(svg.encode()) < 200_000
    root = ElementTree.fromstring(svg)
    names = {element.tag.rpartition("}")[2] for element in root.iter()}
    assert names == {"svg", "title", "style", "defs", "g", "rect", "text", "use"}
    style = next(element.text or "" for element in root.iter() if element.tag.endswith("style"))
    assert "@keyframes" in style
    for mode in ("prefers-color-scheme:dark", "prefers-reduced-motion:reduce"):
        assert mode in style
    assert not re.search(r"https?://(?!www\.w3\.org)|url\(|@import|/root|/home|/tmp", svg)
    text = "".join(root.itertext())
    for command in re.findall(r"^ensue (\w+)", "\n".join(svg.split("$ ")[1:]), re.M):
        assert command in commands_of(command_line()).commands
    assert "ensue quickstart" in text
    assert "best so far" in text


@pytest.mark.slow
def test_next_month_runs(data: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """The section of docs/how-to.md, from the first training to the run that is served."""
    monkeypatch.setattr("ensue.training.run.train_run", _train_tiny)
    monkeypatch.setattr("ensue.extensions.annotating.doubts.train_run", _train_tiny)
    page = (REPOSITORY / "docs" / "how-to.md").read_text(encoding="utf-8")
    section = page.partition("## Next month\n")[2].partition("\n## ")[0]
    lines = [
        shlex.split(line) for block in re.findall(r"```sh\n(.*?)```", section, re.S) for line in block.splitlines()
    ]
    assert [line[1] for line in lines] == ["train", "doubt", "train", "compare", "serve"]
    for _, *arguments in lines[:-1]:
        with pytest.warns(Notice, match="are read again") if "--from" in arguments else nullcontext():
            command_line()(arguments, standalone_mode=False)
    assert "became wrong" in capsys.readouterr().out
    assert "mixed" in load(lines[-1][2]).labels.names


def _train_tiny(recipe: Recipe, out: Path, **options: Any) -> object:
    return train_run(tiny(recipe), out, **options | {"threads": 1})
