"""Exported programs on other processors and systems: zig compiles them, qemu runs those of ARM of 64 bits."""

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from conftest import REPOSITORY
from extensions.exporting.c.carried import NUMBERS, STRICT, put
from extensions.exporting.c.classifiers import KINDS as CLASSIFIERS
from extensions.exporting.c.classifiers import classifier
from extensions.exporting.c.classifiers import written as classifier_written
from extensions.exporting.c.models import MIXED, pipeline, written
from extensions.exporting.c.taggers import pipeline_of
from extensions.exporting.c.taggers import written as tagger_written
from extensions.exporting.c.transducers import KINDS as TRANSDUCERS
from extensions.exporting.c.transducers import files_of, transducer

ZIG = shutil.which("zig") or shutil.which("zig", path=REPOSITORY / "build" / "ziglang" / "ziglang")
QEMU = shutil.which("qemu-aarch64")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(ZIG is None, reason="no zig (pip install --target build/ziglang ziglang)"),
]


LINES = ["the Sea was calm", "Ann \u0130 x"]


def small(kind: str) -> tuple[dict[str, bytes], list[list[str]]]:
    """A model that is not of language, as C, and what its program prints for LINES in front of a tab."""
    if kind == "tagger":
        tagger = pipeline_of("plain")
        words = [[[word.text, word.label] for word in sentence] for sentence in tagger.predict(LINES)]
        return tagger_written(tagger, "some"), [line for sentence in words for line in sentence]
    if kind == "classifier":
        model = classifier(**CLASSIFIERS["both_ways"])
        found = [[",".join(answer.labels), f"{answer.probability:.4f}"] for answer in model.predict(LINES)]
        return classifier_written(model, "some"), found
    other = transducer(**TRANSDUCERS["additive"])
    return files_of(other, "some"), [[answer.text] for answer in other.predict(LINES)]


def zig(folder: Path, cache: Path, target: str, *arguments: str) -> None:
    command = [str(ZIG), "cc", "-target", target, *STRICT, *NUMBERS, *arguments]
    caches = dict.fromkeys(("ZIG_GLOBAL_CACHE_DIR", "ZIG_LOCAL_CACHE_DIR"), str(cache))
    done = subprocess.run(command, cwd=folder, env=os.environ | caches, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(QEMU is None, reason="no qemu-aarch64 (apt-get install qemu-user)")
@pytest.mark.parametrize("kind", ["characters", "simple"])
def test_an_arm_reads_and_writes_as_this_processor(
    kind: str, tmp_path: Path, kept_folder: Callable[[str], Path]
) -> None:
    cache = kept_folder("zig")  # of the C library, too, which takes half a minute
    model = pipeline(kind)
    folder = put(written(model.model, model.tokenizer, "sea"), tmp_path)
    zig(folder, cache, "aarch64-linux-musl", "-O2", "-static", "-o", "sea", "example.c", "sea.c", "-lm")

    def said(text: str, *arguments: str) -> str:
        command = [str(QEMU), "sea", *arguments]
        return subprocess.run(command, cwd=folder, input=text.encode(), capture_output=True, check=True).stdout.decode()

    lines = said(MIXED).split("\n")[:-1]
    for line, score in zip(lines, model.score(MIXED), strict=True):
        assert float(line.split("\t")[0]) == pytest.approx(max(score.nats, 0), abs=2e-4)
    expected = "".join(model.generate("The sea", max_tokens=100, seed=4, temperature=0.8))
    assert said("The sea", "--generate", "100", "4", "0.8") == f"The sea{expected}\n"


@pytest.mark.skipif(QEMU is None, reason="no qemu-aarch64 (apt-get install qemu-user)")
@pytest.mark.parametrize("kind", ["tagger", "classifier", "transducer"])
def test_an_arm_answers_as_this_processor(kind: str, tmp_path: Path, kept_folder: Callable[[str], Path]) -> None:
    files, wanted = small(kind)
    target = ("aarch64-linux-musl", "-O1", "-static", "-o", "some", "example.c", "some.c", "-lm")
    zig(put(files, tmp_path), kept_folder("zig"), *target)
    said = subprocess.run(
        [str(QEMU), "some"], cwd=tmp_path, input="\n".join(LINES).encode(), capture_output=True, check=True
    )
    lines = [line for line in said.stdout.decode().split("\n") if line]
    assert [line.split("\t")[: len(wanted[0])] for line in lines] == wanted


@pytest.mark.parametrize("kind", ["tagger", "classifier", "transducer"])
@pytest.mark.parametrize("target", ["x86_64-windows-gnu", "aarch64-macos"])
def test_windows_and_macos_compile_every_task(
    target: str, kind: str, tmp_path: Path, kept_folder: Callable[[str], Path]
) -> None:
    files, _ = small(kind)
    put(files, tmp_path)
    for file in ("some.c", "example.c"):
        zig(tmp_path, kept_folder("zig"), target, "-c", file)


@pytest.mark.parametrize("target", ["x86_64-windows-gnu", "aarch64-macos"])
def test_windows_and_macos_compile_it(target: str, tmp_path: Path, kept_folder: Callable[[str], Path]) -> None:
    model = pipeline("simple")
    folder = put(written(model.model, model.tokenizer, "sea", embed=True), tmp_path)
    for file in ("sea.c", "example.c"):
        zig(folder, kept_folder("zig"), target, "-c", file)
