"""Printing C without a compiler: checksums, identifiers, and one line for each unsupported model."""

import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from ensue.extensions.exporting.c import writing
from ensue.extensions.exporting.c.expressions import CharacterSets, Program
from ensue.extensions.exporting.c.printing import NUM_LANES, Weights, checksum
from ensue.extensions.exporting.c.writing import identifier
from ensue.recipe.tables import TokenizerRecipe
from extensions.exporting.c import classifiers
from extensions.exporting.c.carried import put
from extensions.exporting.c.every_model import MODELS
from extensions.exporting.c.printing import files_of
from extensions.exporting.c.transducers import transducer
from extensions.frames.small_frames import frame_classifier
from inspection.small import TRANSFORMER, tagger
from language_pipelines import pipeline_of
from layer_tables import layers

SMALL = {"kind": "transformer", "d_model": 4, "num_heads": 2}


def test_the_checksum_is_that_of_whole_numbers() -> None:
    weights = Weights()
    assert [weights.add(torch.arange(3)), weights.add(b"abcde")] == [0, 16]
    numbers = weights.padded_content()
    assert len(numbers) == NUM_LANES
    sums, prime, mask = [0] * NUM_LANES, 0x9E3779B97F4A7C15, (1 << 64) - 1
    for place, number in enumerate(numbers.tolist()):
        lane = place % NUM_LANES
        sums[lane] = ((sums[lane] ^ number) * prime + (sums[lane] >> 29)) & mask
    expected = len(numbers)
    for part in sums:
        expected = ((expected ^ part) * prime + (expected >> 29)) & mask
    assert checksum(numbers) == expected


def test_sets_of_characters_depend_on_the_flags_in_an_expression() -> None:
    def set_of(expression: str) -> int:
        return Program(expression, sets).code[1]

    sets = CharacterSets()
    assert len({set_of(f"{flags}{item}") for item in (".", r"\w") for flags in ("", "(?s)", "(?a)")}) == 4


def test_an_identifier_does_not_collide_with_names_in_the_files() -> None:
    pieces = [path.read_text() for path in Path(writing.__file__).parent.glob("*.[ch]")]
    code = re.sub(r"/\*.*?\*/", "", "".join(pieces), flags=re.S)
    ends = set(re.findall(r"\bNAME(_\w+)", code))
    words = {word for word in re.findall(r"[A-Za-z]\w*", code) if not word.startswith("NAME_")}
    inside = {word.removesuffix(end) for word in words for end in ends if word.endswith(end)}
    headers = set(re.findall(r"#include <(\w+)\.h>", code))
    others = {"example", "Example", "Makefile", "makefile", "clean", "all", "help", "install", "m"}
    assert {"utf8", "string"} <= inside | headers
    for name in inside | headers | others:
        assert identifier(Path("folder", name)) == f"model_{name}"
    names = [identifier(Path(name)) for name in ("a-b.c", "int", "7 é", "/", "examples")]
    assert names == ["a_b_c", "int", "model_7__", "model_", "examples"]


@pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc is not installed")
def test_the_source_and_the_example_of_each_interface_compile_without_a_warning(tmp_path: Path) -> None:
    sources = []
    for name in MODELS.keys() - {"characters", "tagger", "tagger of letters", "classifier", "transducer"}:
        files, _ = MODELS[name]("f32")
        put(files, folder := tmp_path / name)
        sources += [folder / file for file in files if file.endswith(".c")]
    assert len(sources) == 14
    subprocess.run(["gcc", "-fsyntax-only", "-Wall", "-Wextra", "-Werror", *sources], check=True)


def language(tokenizer: str, **table: object) -> dict[str, bytes]:
    pipeline = pipeline_of(tokenizer, layers(**{"kind": "lstm", "d_embedding": 8, "d_model": 8, **table}))
    return files_of(pipeline, "model")


def classifier() -> dict[str, bytes]:
    pipeline = classifiers.classifier(model=SMALL, features={"d_words": 4}, head={"pooling": ["mean"]})
    return files_of(pipeline, "model")


def translator(**changes: object) -> dict[str, bytes]:
    return files_of(transducer(**changes), "model")


@pytest.mark.parametrize(
    ("export", "reason"),
    [
        (lambda: language("wordpiece"), "unsupported tokenizer wordpiece"),
        (lambda: language("characters", kind="transformer", window=3), r"Window.* has a separate state"),
        (classifier, "its layers are not recurrent"),
        (lambda: files_of(tagger(model={"kind": "none"}), "model"), "its layers are not recurrent"),
        (lambda: files_of(tagger(model=TRANSFORMER), "model"), "its layers are not recurrent"),
        (lambda: files_of(tagger(columns={"pos": ["X"]}), "model"), 'it reads the column "pos" of the data'),
        (lambda: translator(source=TokenizerRecipe(kind="bpe", lowercase=True)), "lowercasing is unsupported"),
        (lambda: translator(decoder=SMALL, attention={"kind": "scaled-dot"}), "its decoder is not recurrent"),
        (lambda: translator(search={"beams": 33}), "its search has 33 beams; expected at most 32 in C"),
        (lambda: files_of(frame_classifier(encoder=TRANSFORMER), "model"), "its layers are not recurrent"),
    ],
)
def test_unsupported_models_are_refused(export: Callable[[], object], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        export()
