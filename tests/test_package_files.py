"""Files of the package other than Python: readable from a zip archive, and C code for every compiler."""

import os
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import ensue
from ensue.version import package_text

SOURCE = Path(ensue.__file__).parent
PROGRAMS = "programs"
"""The name of folders of programs that an export copies."""
C_FILES = sorted(path.relative_to(SOURCE).as_posix() for path in SOURCE.rglob("*.[ch]"))

READ = """
from ensue.version import package_file, package_text
from ensue.recipe import recipe_names
assert len(package_text("engine/kernels.h")) > 1000 and package_file("extensions/exporting/web/pages/page.js").is_file()
assert "char-lstm" in recipe_names()
"""
USED = """
import sys
from contextlib import suppress
from pathlib import Path
import ensue
from ensue.cli import main

def run(*arguments):
    sys.argv[1:] = arguments
    try:
        main()
    except SystemExit as ended:
        assert not ended.code, arguments

run("train", "char-lstm", "--train", "text.txt", "--out", "run", "--set", "train.steps=3", "--set", "encoder.d_model=8")
assert "".join(ensue.load("run").generate("a", max_tokens=5, seed=1))
run("inspect", "run", "text.txt", "--out", "page.html")
run("export", "run", "--format", "c", "--out", "sea")
run("export", "run", "--format", "onnx", "--out", "net")
assert Path("sea/sea.c").is_file() and Path("page.html").is_file()
"""


def without_comments(text: str) -> str:
    """Return C code without comments."""
    return re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL)


def arguments_of_lowered_alignment(text: str) -> Iterator[str]:
    """Yield arguments and results that are vectors with `aligned`; gcc 14 and later fail at them on ARM."""
    text = without_comments(text)
    lowered = re.findall(r"typedef [^;]*vector_size[^;]*aligned\(|typedef [^;]*aligned\([^;]*vector_size", text)
    names = re.findall(r"typedef \w+ (\w+) __attribute__\(\((?=[^;]*vector_size)(?=[^;]*aligned\()[^;]*\)\);", text)
    assert len(names) == len(lowered), "a typedef that this law cannot read"
    for name in names:
        yield from re.findall(rf"[(,] *(?:const )?{name} \w+ *[,)]", text)
        yield from re.findall(rf"(?m)^[\w ]*\b{name} \w+\([^;]*?\) {{", text)


@pytest.mark.parametrize("name", C_FILES)
def test_no_argument_is_a_vector_of_lowered_alignment(name: str) -> None:
    types = "" if name.startswith("extensions/exporting/") else package_text("engine/kernels.h")
    assert not list(arguments_of_lowered_alignment(types + package_text(name)))


@pytest.mark.parametrize(
    "bug", ["INLINE real total(vector v) {", "static vector both(const real *x) {", "void f(int n, const vector w);"]
)
def test_planted_arguments_of_lowered_alignment_are_detected(bug: str) -> None:
    assert list(arguments_of_lowered_alignment(package_text("engine/kernels.h") + bug))


@pytest.mark.parametrize(
    "name", [name for name in C_FILES if name.endswith(".c") and not name.startswith("extensions/exporting/")]
)
def test_functions_that_python_calls_are_exported_on_windows(name: str) -> None:
    local = r"(?m)^(?!PUBLIC|static|INLINE|UNUSED)[a-z]\w* [^;={]*\("
    assert not re.findall(local, without_comments(package_text(name)))


def test_no_module_reads_files_relative_to_its_own_path() -> None:
    beside = re.compile(r"(?<![\w.])__(file|path)__")
    modules = [path for path in SOURCE.rglob("*.py") if beside.search(path.read_text(encoding="utf-8"))]
    assert [path for path in modules if path.parent.name != PROGRAMS] == []


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A zip archive of the package."""
    path_of_archive = tmp_path_factory.mktemp("archive") / "ensue.zip"
    with zipfile.ZipFile(path_of_archive, "w") as file:
        for path in SOURCE.rglob("*"):
            if path.is_file() and "__pycache__" not in path.parts:
                file.write(path, path.relative_to(SOURCE.parent))
    return path_of_archive


@pytest.mark.parametrize("program", [READ, pytest.param(USED, marks=pytest.mark.slow)], ids=["read", "used"])
def test_the_package_works_in_a_zip_archive(program: str, archive: Path, tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("the sea was calm\n" * 200)
    paths = os.pathsep.join([str(archive), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, "-c", f"import ensue\nassert '.zip' in ensue.__file__\n{program}"]
    environment = os.environ | {"PYTHONPATH": paths, "ENSUE_CACHE": str(tmp_path / "cache")}
    result = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr[-3000:]
