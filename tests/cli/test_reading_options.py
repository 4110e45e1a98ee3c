"""Law: every command that reads data has the options of reading, and the settings of a run are the default."""

import io
import sys
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from functools import cache
from pathlib import Path

import pytest
import typer

from command_fixtures import Ensue
from ensue.cli import command_line
from ensue.cli.options import DATA_OPTIONS, accesses
from ensue.cli.program import commands
from ensue.library import load
from ensue.notices import Notice
from ensue.outputs import Access
from ensue.recipe import read_recipe
from ensue.tasks import task_entries
from ensue.tasks.contract.pipeline import READERS, Pipeline
from ensue.tasks.labeling.cutter import CutterAndTagger
from ensue.training.run import train_run

pytestmark = pytest.mark.filterwarnings("default::ensue.notices.Notice")
READS = {Access.DATA, Access.TEXTS}
ONE_FORM = {
    "embed": "a text on each line", "neighbors": "a text on each line", "quickstart": "running text",
    "inspect": "one text, or the file of one",
}  # fmt: skip
"""The data of commands that have neither a format nor columns to choose."""
OTHER_MEANING = {"choose": "--format is that of the output"}
FEW_STEPS = {"train.steps": 1, "head.ngram_buckets": 1000}
ROWS = [("Das Gerät läuft nicht", "Störung"), ("Müller zahlt für die Rechnung", "Rechnung")] * 6


@cache
def flags(name: str) -> set[str]:
    command = typer.main.get_command(command_line(name)).commands[name]  # type: ignore[attr-defined]
    return {flag for option in command.params for flag in option.opts}


def readers() -> list[str]:
    return [name for name, command in commands().items() if READS & set(accesses(command).values())]


@pytest.mark.parametrize("name", readers())
def test_a_command_that_reads_data_takes_encoding_format_and_columns(name: str) -> None:
    all_flags = {flag for options, _ in DATA_OPTIONS.values() for flag in options.split("/")}
    assert ({"--encoding"} if name in ONE_FORM else all_flags) <= flags(name)


def test_the_table_lists_the_commands_that_read_data() -> None:
    expected = "quickstart prepare train evaluate predict score inspect embed neighbors distill begin doubt choose"
    assert {*expected.split(), "search", "compare", "data"} <= set(readers())
    assert OTHER_MEANING.keys() | ONE_FORM.keys() <= set(readers())
    assert [name for name in readers() if not {"--encoding", "--format", "--labels", "--text"} <= flags(name)] == [
        name for name in readers() if name in ONE_FORM
    ]


def table(path: Path, encoding: str) -> Path:
    lines = ["Nr;Text;Kategorie", *(f"{number};{text} {number};{label}" for number, (text, label) in enumerate(ROWS))]
    path.write_text("\n".join(lines) + "\n", encoding=encoding)
    return path


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A classifier trained on a table in cp1252."""
    folder = tmp_path_factory.mktemp("cp1252")
    data = {"data.train": str(table(folder / "t.csv", "cp1252")), "data.encoding": "cp1252"}
    train_run(read_recipe("classify-bag", data | FEW_STEPS), folder / "run", device="cpu", threads=1)
    return folder / "run"


@pytest.mark.parametrize(
    "arguments", ["evaluate RUN FILE", "predict RUN FILE", "choose RUN FILE --count 1", "compare RUN RUN --test FILE"]
)
def test_the_encoding_of_a_run_is_the_default(arguments: str, run: Path, tmp_path: Path, ensue: Ensue) -> None:
    names = {"RUN": run, "FILE": table(tmp_path / "e.csv", "cp1252")}
    result = ensue(*(names.get(each, each) for each in arguments.split()))
    assert (result.status, "UTF-8" in result.err) == (0, False), result.err
    names["FILE"] = table(tmp_path / "e8.csv", "utf-8")
    other_result = ensue(*(names.get(each, each) for each in arguments.split()))
    assert other_result.out.replace("e8.csv", "e.csv") == result.out
    assert "e8.csv: read as UTF-8; --encoding cp1252 reads it as in training\n" in other_result.err


@pytest.mark.parametrize(
    "arguments",
    ["evaluate RUN FILE", "choose RUN FILE --count 1", "compare RUN RUN --test FILE", "predict RUN FILE --json"],
)
def test_commands_read_data_with_other_columns(arguments: str, run: Path, tmp_path: Path, ensue: Ensue) -> None:
    table_of_run, other_table = table(tmp_path / "e.csv", "utf-8"), tmp_path / "o.csv"
    other_table.write_text(table_of_run.read_text().replace("Nr;Text;Kategorie", "Text;Inhalt;Klasse"))
    expected = ensue(*({"RUN": run, "FILE": table_of_run}.get(each, each) for each in arguments.split()))
    words = [{"RUN": run, "FILE": other_table}.get(each, each) for each in arguments.split()]
    result = ensue(*words, "--text", "Inhalt", "--labels", "Klasse").succeeded()
    assert result.out.replace("o.csv", "e.csv") == expected.out
    assert "has no --sources" in ensue(*words, "--sources", "Text").err
    message = 'no "Nix"; there are "Text", "Inhalt", "Klasse"; --text NAME names the column of texts'
    assert message in ensue(*words, "--text", "Nix").err


def test_messages_of_commands_without_settings_name_their_options(run: Path, tmp_path: Path, ensue: Ensue) -> None:
    wide = tmp_path / "wide.txt"
    wide.write_text("Gerät\n" * 9, encoding="utf-16")
    for arguments in (("quickstart", wide), ("predict", run, wide, "--encoding", "utf-8"), ("data", wide)):
        assert ensue(*arguments).err.endswith("; for UTF-16 try --encoding utf-16\n")
    file = tmp_path / "two.csv"
    file.write_text("body;article;Klasse\n" + "ein Satz von hier;noch ein Satz hier;Störung\n" * 4, encoding="utf-8")
    result = ensue("evaluate", run, file, "--labels", "Klasse", "--text", "article,body")
    assert result.err.endswith(": the model reads single texts; found 2: 'noch ein Satz hier | ein Satz von hier'\n")
    assert "--set" not in ensue("evaluate", run, file, "--labels", "Klasse,article").err


def pipelines() -> list[type]:
    """Return the pipelines of all tasks, with their bases."""
    classes = {each for entry in task_entries() for each in entry.pipeline_class.__mro__}
    return sorted((each for each in classes if issubclass(each, Pipeline)), key=lambda each: each.__name__)


def methods_without_settings_of_run(classes: Iterable[type]) -> list[str]:
    """Return methods that read data in an encoding whose default is not that of training."""
    return [
        f"{each.__name__}.{name}"
        for each in classes
        for name in READERS
        if (method := vars(each).get(name)) is not None
        and not getattr(method, "__isabstractmethod__", False)
        and each is not Pipeline
        and method.__code__.co_name != "reading_method"
    ]


def test_every_pipeline_reads_with_the_settings_of_training() -> None:
    assert len(pipelines()) > 10
    assert methods_without_settings_of_run([*pipelines(), CutterAndTagger]) == []

    class Other:
        def evaluate(self, data: str, *, encoding: str = "utf-8") -> None: ...

    assert methods_without_settings_of_run([Other]) == ["Other.evaluate"]


def test_the_settings_of_a_run_are_the_default_of_methods(run: Path, tmp_path: Path) -> None:
    """The data are a path, several paths, and rows of a program, which are UTF-8."""
    pipeline = load(run, device="cpu")
    old, new = table(tmp_path / "e.csv", "cp1252"), table(tmp_path / "f.csv", "utf-8")
    expected = pipeline.evaluate(old, encoding="cp1252").as_json()  # type: ignore[attr-defined]
    rows = [{"Text": f"{text} {number}", "Kategorie": label} for number, (text, label) in enumerate(ROWS)]
    for data, says in (
        (old, nullcontext()),
        (str(new), pytest.warns(Notice, match="read as UTF-8")),
        (rows, nullcontext()),
    ):
        with says:
            assert pipeline.evaluate(data).as_json() == expected
    both = pipeline.evaluate([old, table(tmp_path / "g.csv", "cp1252")])
    assert both.as_json()["accuracy"] == expected["accuracy"]
    assert "".join(pipeline.prediction_lines(str(old))).count("Gerät") == 6  # type: ignore[attr-defined]
    assert pipeline.scored_items(old) is not None


def test_stdin_is_utf_8_or_in_the_encoding_of_training(run: Path, ensue: Ensue) -> None:
    answers = [ensue("predict", run, stdin="Das Gerät läuft\n".encode(encoding)) for encoding in ("cp1252", "utf-8")]
    assert answers[0].out == answers[1].out != ""
    assert [answer.err.count("read as UTF-8") for answer in answers] == [0, 1]


@pytest.mark.parametrize(
    "option", [["--encoding", "cp1252", "--text", "Text", "--labels", "Kategorie"], ["--set", "data.encoding=cp1252"]]
)
def test_doubt_reads_data_with_the_settings(option: list[str], tmp_path: Path, ensue: Ensue) -> None:
    file = table(tmp_path / "t.csv", "cp1252")
    settings = [word for key, value in FEW_STEPS.items() for word in ("--set", f"{key}={value}")]
    result = ensue("doubt", file, *option, "--folds", 2, *settings, "--threads", 1)
    assert (result.status, " in 12 texts" in result.err) == (0, True), result.err


@pytest.mark.parametrize(
    "command",
    [
        "doubt FILE", "train classify-bag --train FILE --out OUT", "evaluate RUN FILE", "predict RUN FILE",
        "data FILE", "prepare classify-bag --train FILE", "quickstart FILE --out OUT", "choose RUN FILE --count 1",
        "embed RUN FILE",
    ],
)  # fmt: skip
def test_an_unknown_encoding_is_refused(command: str, run: Path, tmp_path: Path, refused: Callable[..., str]) -> None:
    names = {"RUN": run, "FILE": table(tmp_path / "t.csv", "cp1252"), "OUT": tmp_path / "out"}
    arguments = [names.get(each, each) for each in command.split()]
    if command.startswith("embed"):
        assert "for predict" in refused(*arguments, "--encoding", "nonsense")
    else:
        assert 'unknown encoding "nonsense"' in refused(*arguments, "--encoding", "nonsense")


def test_a_proposed_recipe_reads_data_with_the_options(tmp_path: Path, refused: Callable[..., str]) -> None:
    file = table(tmp_path / "t.csv", "cp1252")
    line = refused("train", file, "--encoding", "cp1252", "--text", "Text", "--labels", "Kategorie")
    assert line.endswith("; recipe: classify-linear, since texts are few; --out RUN trains it")


def test_the_format_of_a_run_is_the_default_for_files_of_the_same_suffix(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = (run / "recipe.toml").read_text()
    assert 'format = "auto"' in text
    other = tmp_path / "other"
    files = [str(table(tmp_path / name, "utf-8")) for name in ("t.csv", "t.txt")]
    data = {"data.train": files, "data.format": "csv-semicolon"}
    train_run(read_recipe("classify-bag", data | FEW_STEPS), other, device="cpu", threads=1)
    pipeline = load(other, device="cpu")
    assert pipeline.reading("e.txt") == {"encoding": "utf-8", "format": "csv-semicolon"}
    assert pipeline.reading("e.jsonl") == pipeline.reading("-") == {"encoding": "utf-8"}
    assert pipeline.reading("e.txt", format="plain")["format"] == "plain"
    monkeypatch.setattr(type(pipeline), "evaluate", lambda pipeline, location, *, encoding="utf-8": None)
    assert pipeline.reading("e.txt") == {"encoding": "utf-8"}


@pytest.mark.parametrize(
    ("encoding", "begins"), [("utf-8-sig", b"\xef\xbb\xbfNr;"), ("cp1252", b"Nr;"), ("utf-16-le", b"N\0")]
)
def test_predictions_are_written_in_an_encoding(
    encoding: str, begins: bytes, run: Path, tmp_path: Path, ensue: Ensue, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, stdout = table(tmp_path / "e.csv", "cp1252"), io.BytesIO()
    expected = ensue("predict", run, file).out
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(stdout, encoding="utf-8"))
    ensue("predict", run, file, "--output-encoding", encoding)
    written = stdout.getvalue()
    assert written.startswith(begins)
    assert written.decode(encoding).splitlines() == expected.splitlines()
    assert "Gerät" in expected
    monkeypatch.undo()
    ensue("predict", run, file, "--out", tmp_path / "o.csv", "--output-encoding", encoding)
    assert (tmp_path / "o.csv").read_bytes().startswith(begins)
    assert (tmp_path / "o.csv").read_bytes().decode(encoding) == ensue("predict", run, file, "--to", "csv").out


@pytest.mark.parametrize(("encoding", "mark"), [("utf-8-sig", 1), ("utf-8", 0), ("cp1252", 0)])
def test_a_byte_order_mark_is_written_once(encoding: str, mark: int, run: Path, tmp_path: Path, ensue: Ensue) -> None:
    """The mark of the input is not copied, and an encoding without marks has none."""
    out = tmp_path / "o.csv"
    for text in (b"\xef\xbb\xbfa b\n", b"a b\n"):
        ensue("predict", run, "--output-encoding", encoding, "--to", "csv", "--out", out, "--overwrite", stdin=text)
        assert out.read_text(encoding="utf-8").count("\ufeff") == mark
        result = ensue("predict", run, "--output-encoding", encoding, stdin=text)
        assert (result.status, result.out.count("\ufeff")) == (0, mark), result


def test_a_character_missing_in_an_encoding_is_an_error_of_one_line(run: Path, ensue: Ensue) -> None:
    result = ensue("predict", run, "--output-encoding", "latin-1", stdin="→\n".encode())
    assert result.status == 2
    assert (
        ensue(
            "predict", run, "--to", "jsonl", "--out", "o", "--output-encoding", "latin-1", stdin="→\n".encode()
        ).status
        == 2
    )
    assert not Path("o").exists()
    assert 'the output: latin-1 lacks the character "→" (U+2192)' in result.err


@pytest.mark.parametrize(
    ("name", "message"),
    [("nix", 'unknown encoding "nix"'), ("rot13", 'unknown encoding "rot13"'), ("hex", 'unknown encoding "hex"')],
)
def test_an_unknown_output_encoding(name: str, message: str, run: Path, refused: Callable[..., str]) -> None:
    line = refused("predict", run, "--output-encoding", name, stdin=b"a\n")
    assert message in line
    assert f'did you mean "{name}"' not in line
