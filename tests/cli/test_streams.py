"""Errors of the system, such as full or closed streams, are one line without a traceback."""

import io
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from command_fixtures import Ensue
from ensue.console.output import replace_streams, user_message
from ensue.errors import EnsueError

ENTRY = [sys.executable, "-c", "import ensue.cli; ensue.cli.main()"]


def run(arguments: list[str], script: str) -> tuple[int, str]:
    """Return the status and stderr of a command whose streams a shell redirects."""
    command = ["sh", "-c", f'"$@" {script}', "sh", *ENTRY, *arguments]
    result = subprocess.run(command, stderr=subprocess.PIPE, check=False)
    return result.returncode, result.stderr.decode()


@pytest.mark.slow
@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("arguments", "script", "expected"),
    [
        (["--version"], ">&-", (2, "ensue: stdout cannot be written to (Bad file descriptor)\n")),
        (["recipes", "nothing"], "2> /dev/full", (2, "")),
        *(
            pytest.param(*case, marks=pytest.mark.slow)
            for case in (
                (["--help"], "> /dev/full", (2, "ensue: stdout cannot be written to (No space left on device)\n")),
                (["recipes"], "> /dev/full", (2, "ensue: stdout cannot be written to (No space left on device)\n")),
                (["recipes"], "> /dev/null 2>&-", (0, "")),
                (["recipes"], "> /dev/null <&-", (0, "")),
                (["--version"], ">&- 2>&-", (2, "")),
            )
        ),
    ],
)
def test_errors_of_streams_are_one_line(arguments: list[str], script: str, expected: tuple[int, str]) -> None:
    assert run(arguments, script) == expected


class RefusingStream(io.StringIO):
    """A stream that refuses to be written to."""

    def __init__(self, error: OSError) -> None:
        super().__init__()
        self.error = error

    def reconfigure(self, *, encoding: str, errors: str) -> None:
        assert (encoding, errors) == ("utf-8", "backslashreplace")

    def write(self, text: str) -> int:
        raise self.error


def test_an_output_that_cannot_be_printed_ends_the_command_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """It also ends if a library has ignored the first error."""
    monkeypatch.setattr(sys, "stdout", RefusingStream(OSError(28, "No space left on device")))
    with replace_streams():
        for _ in range(2):
            with pytest.raises(EnsueError, match=r"^stdout cannot be written to \(No space"):
                print("x")
        with pytest.raises(EnsueError):
            sys.stdout.flush()


def test_a_closed_pipe_ends_the_command_without_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", RefusingStream(BrokenPipeError(32, "Broken pipe")))
    with replace_streams(), pytest.raises(SystemExit) as caught:
        print("x")
    assert not caught.value.code


def surrogates() -> UnicodeEncodeError:
    try:
        'train = "a \udcff.txt"\n'.encode()
    except UnicodeEncodeError as error:
        return error
    raise AssertionError


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (EnsueError("a mistake"), "a mistake"),
        (PermissionError(13, "Permission denied", "/a/b"), "/a/b: Permission denied"),
        (OSError(5, "Input/output error"), "Input/output error"),
        (surrogates(), r"\udcff.txt: not UTF-8"),
        (MemoryError(), "not enough memory"),
        (RuntimeError("can't allocate memory: you tried to allocate 3500000000 bytes."),
         "not enough memory: 3,500,000,000 more bytes were requested"),
        (UnicodeEncodeError("ascii", "é", 0, 1, "a defect"), None),
        (RuntimeError("a defect"), None), (ValueError("a defect"), None), (RecursionError("a defect"), None),
    ],
)  # fmt: skip
def test_errors_of_the_system_are_one_line(error: Exception, line: str | None) -> None:
    assert user_message(error) == line


def test_an_error_is_one_line_whatever_its_names_contain(refused: Callable[..., str], in_tmp_path: None) -> None:
    assert refused("data", "two\nlines").startswith(r"two\nlines: no such file")
    assert len(refused("data", "long" * 5000)) < 6000
    assert refused("data", "red\x1b[31m").startswith(r"red\x1b[31m: no file")


def test_a_defect_shows_its_traceback(ensue: Ensue, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> list[str]:
        raise ValueError("a defect")

    monkeypatch.setattr("ensue.recipe.recipe_names", broken)
    with pytest.raises(ValueError, match="a defect"):
        ensue("recipes")


@pytest.fixture
def piped() -> Callable[[bytes], str]:
    """A function that returns the name of a pipe with these bytes, like `<(...)` of a shell."""

    def open_pipe(content: bytes) -> str:
        reading, writing = os.pipe()
        os.write(writing, content)
        os.close(writing)
        return f"/dev/fd/{reading}"

    return open_pipe


@pytest.mark.slow
@pytest.mark.skipif(not os.path.isdir("/dev/fd"), reason="pipes have no names here")
def test_a_named_pipe_is_read_once(ensue: Ensue, trained: Path, text: Path, piped: Callable[[bytes], str]) -> None:
    expected = ensue("score", trained / "lstm", text).out
    assert ensue("score", trained / "lstm", piped(text.read_bytes())).out == expected
    result = ensue("evaluate", trained / "lstm", name := piped(b"the cat"))
    assert result.err == f"ensue: {name}: a pipe, which can be read only once; expected a file or a folder\n"


def test_names_that_the_system_refuses_are_errors_of_one_line(ensue: Ensue, trained: Path, text: Path) -> None:
    long, lstm = "x" * 300, trained / "lstm"
    for arguments in (
        ["data", long], ["generate", long], ["score", lstm, long], ["predict", long],
        ["evaluate", lstm, "--minimal-pairs", long], ["train", "char-lstm", "--train", text, "--out", long],
        ["train", "char-lstm", "--train", long, "--out", "x"],
    ):  # fmt: skip
        result = ensue(*arguments)
        assert (result.status, result.out) == (2, "")
        assert "File name too long" in result.err
        assert result.err.count("\n") == 1
    assert ensue("recipes", long).err.startswith('ensue: no recipe named "xxx')  # a name may also be a recipe's
    assert ensue("data", "~nosuchuser/x").err == "ensue: ~nosuchuser/x: no home directory of ~nosuchuser\n"
    assert "a name that is not UTF-8" in ensue("train", "char-lstm", "--train", text, "--out", "a\udcff").err
