"""Law: results are UTF-8 unless stdout is a terminal, and stdin is read as UTF-8, in any locale."""

import inspect
import io
import sys
from pathlib import Path

import pytest

from command_fixtures import Ensue
from ensue.cli.program import commands
from ensue.console import output

TEXT = "schön Ω\n"


class Terminal(io.TextIOWrapper):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("encoding", ["ascii", "cp1252", "latin-1", "utf-8"])
def test_stdout_is_utf8_unless_it_is_a_terminal(encoding: str, monkeypatch: pytest.MonkeyPatch) -> None:
    written = {}
    for kind in (io.TextIOWrapper, Terminal):
        monkeypatch.setattr(sys, "stdout", kind(io.BytesIO(), encoding=encoding))
        with output.replace_streams():
            print(TEXT, end="", flush=True)
            written[kind] = sys.stdout.buffer.getvalue()  # type: ignore[attr-defined]
    assert written[io.TextIOWrapper] == TEXT.encode()
    assert written[Terminal] == TEXT.encode(encoding, "backslashreplace")


def test_every_command_prints_through_this_stream() -> None:
    """Modules use neither an earlier name of stdout, nor its bytes, nor its descriptor."""
    package = Path(output.__file__).parents[1]
    for each in commands().values():
        file = Path(inspect.getfile(inspect.unwrap(each)))
        assert file.is_relative_to(package)
    for file in package.rglob("*.py"):
        text = file.read_text(encoding="utf-8")
        bypasses = [name for name in ("stdout.buffer", "__stdout__", "import stdout", "os.write(1,") if name in text]
        assert bypasses == [], file


@pytest.mark.parametrize("name", ["predict", "score", "generate", "evaluate"])
def test_an_ascii_locale_changes_no_result(
    name: str, ensue: Ensue, trained: Path, runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.txt").write_text(TEXT, encoding="utf-8")
    arguments = {
        "predict": ["predict", runs / "names", "-"],
        "score": ["score", trained / "lstm", "-", "--json"],
        "generate": ["generate", trained / "lstm", "--prompt", "-", "--max-tokens", 3, "--seed", 0],
        "evaluate": ["evaluate", trained / "lstm", tmp_path / "a.txt", "--json"],
    }[name]
    expected = ensue(*arguments, stdin=TEXT.encode()).out
    out = io.TextIOWrapper(io.BytesIO(), encoding="cp1252")
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", out)
        ensue(*arguments, stdin=TEXT.encode())
    assert out.buffer.getvalue().decode() == expected  # type: ignore[attr-defined]
    if name in ("predict", "score"):
        assert "Ω" in expected
