"""A model as a folder of C: the interface, the model, its weights, an example, and how it is compiled."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ensue.engine.trace import Untraceable
from ensue.errors import EnsueError
from ensue.extensions.exporting.c.classifying import classifier_parts
from ensue.extensions.exporting.c.frames import frame_classifier_parts, frame_tagger_parts
from ensue.extensions.exporting.c.precision import F32, PRECISIONS, measured
from ensue.extensions.exporting.c.printing import Parts, TokenScores, Weights, checksum, functions, piece, printed_step
from ensue.extensions.exporting.c.tagging import tagger_parts
from ensue.extensions.exporting.c.tokens import lexer_pieces, symbol, token_texts
from ensue.extensions.exporting.c.transducing import transducer_parts
from ensue.extensions.exporting.c.transformer import transformer_parts
from ensue.extensions.exporting.exported import write_directory
from ensue.models.language_model import LanguageModel
from ensue.runs.directory import RunDirectory
from ensue.text.tokenizer import Tokenizer
from ensue.version import VERSION

CAN = (
    "C has language models with recurrent layers or Transformers whose tokens are characters, bytes, subwords of bytes "
    "or words, taggers of words or frames with recurrent layers, classifiers of them with such layers or of texts by "
    "n-grams, and encoder-decoders of such tokens with recurrent layers"
)
_CARD = re.compile(r"^license: *(\S+)$", re.M)
WEIGHTS = """\
The program reads `{0}.weights` beside it. If it is called by a name without a folder, as one of the `PATH`, it looks in
the present folder. `./{0} --weights FILE` names another place. With `ensue export --embed` there is no such file."""
USAGE = """\
    ./NAME < text.txt                                the surprisal of each token
    printf 'The ' | ./NAME --generate 200 1 0.8      200 tokens, seed 1, temperature 0.8
"""
LANGUAGE = "language-modeling"
_TAKEN = re.compile(
    "(?i)example|(gnu)?makefile|all|all_build|clean|edit_cache|help|install|preinstall|rebuild_cache|zero_check|m|float|"
    "immintrin|math|stddef|stdint|stdio|stdlib|string|add|at|cut|end|expression|filter|is|lexer|make|mark|merges|most|"
    "next|read|reads|subwords|usual|utf8|wasm_simd128|wide|word"
)
"""Files beside a model, targets of CMake, libraries and headers, and beginnings of names inside of the C file."""


def export_c(
    run: RunDirectory, out: Path, *, embed: bool = False, precision: str = F32, overwrite: bool = False
) -> list[str]:
    """Writes a run as C, and returns lines about what was written. With `embed` the weights are inside of the C file.
    Matrices and tables are kept in one of the `PRECISIONS`; what that changes is measured.

    Raises EnsueError for a run that cannot be printed, and DataError for a directory with other files.
    """
    name = name_for(out)
    contents, usage, _, notes = printed(run, name, embed=embed, precision=precision)
    contents["README.md"] = _readme(run, name, usage, card_of(run), embed, notes).encode()
    write_directory(out, contents, overwrite=overwrite)
    size = sum(map(len, contents.values()))
    return [*notes, f"{out}: {len(contents)} files, {size:,} bytes; `make -C {out}` compiles the example"]


class Printed(NamedTuple):
    """The files of a run without README.md, how the program is called, the pipeline, and notes on its precision."""

    files: dict[str, bytes]
    usage: str
    pipeline: Any
    notes: list[str]


def printed(run: RunDirectory, name: str, *, embed: bool = False, precision: str = F32) -> Printed:
    """A run as C. Raises EnsueError for one that cannot be printed."""
    if run.recipe.task not in TASKS:
        raise EnsueError(f"{run.path}: a {run.recipe.what} cannot be exported as C; {CAN}")
    import torch  # noqa: PLC0415

    pipeline = run.entry.pipeline_class.of(run, torch.device("cpu"))
    try:
        weights = Weights(precision=precision)
        parts = TASKS[run.recipe.task](pipeline, weights)
        files = assembled(parts, weights, name, embed=embed)
    except (Untraceable, ValueError) as reason:
        raise EnsueError(f"{run.path}: cannot be exported as C ({run.recipe.describe()}): {reason}; {CAN}") from None
    notes = [measured(run, pipeline, files, name, precision)] if precision != F32 else []
    return Printed(files, parts.usage, pipeline, notes)


def name_for(out: Path) -> str:
    """The name of a directory as a name in C, and none of those that its files have already."""
    name = re.sub(r"\W", "_", out.resolve().name, flags=re.A)
    return name if name[:1].isalpha() and not _TAKEN.fullmatch(name) else f"model_{name}"


def card_of(run: RunDirectory) -> str:
    """The card of a run, or nothing."""
    card = run.path / "README.md"
    return card.read_text("utf-8", "replace") if card.is_file() else ""


def license_in(card: str) -> str:
    """The license that a card names, or that it names none."""
    found = _CARD.search(card)
    return found[1] if found else "not named in the card of the run; ask who made it before you pass it on"


def written(
    model: LanguageModel, tokenizer: Tokenizer, name: str, *, embed: bool = False, precision: str = F32
) -> dict[str, bytes]:
    """The files of a language model. Raises `Untraceable` or `ValueError` for layers or tokenizers without C."""
    weights = Weights(precision=precision)
    return assembled(language_parts(model, tokenizer, weights), weights, name, embed=embed)


def assembled(parts: Parts, weights: Weights, name: str, *, embed: bool = False) -> dict[str, bytes]:
    """The files of a model, without README.md, by their names, which begin with `name`."""
    numbers = weights.whole()
    constants = parts.constants | {
        "WORDS": len(numbers),
        "IS_EMBEDDED": int(embed),
        "PRECISION": PRECISIONS[weights.precision],
    }
    define = [f"#define {key} {value}" for key, value in constants.items()]
    define.append(f"#define CHECKSUM UINT64_C({checksum(numbers)})\n")
    about = f"/* Written by ensue {VERSION}. NAME.h says what this does; the weights are in {_place(embed)}. */\n"
    texts = [about + '#include "NAME.h"\n', piece("prelude.h"), "\n".join(define)]
    texts += [_embedded(numbers)] * embed
    texts += [functions(), piece("weights.h")]
    whole = {"rows.h": "whole.h"} if weights.precision == "int8" else {}
    texts += [piece(whole.get(part, part)) if part.endswith(".h") else part for part in parts.pieces]
    files_of = {
        "NAME.h": header(parts.interface, parts.said),
        "NAME.c": "\n".join(texts),
        "example.c": _framed("example.c", f"{parts.interface}_example.c", "@TASK@", parts.said),
        **{file: piece(file) for file in ("Makefile", "CMakeLists.txt")},
    }
    own = {"NAME": name} | {f"@{key}@": text for key, text in parts.texts.items()}
    found = {filled(file, own): filled(text, own).encode() for file, text in files_of.items()}
    return found if embed else found | {f"{name}.weights": numbers.tobytes()}


def header(interface: str, said: dict[str, Any]) -> str:
    """NAME.h of a task."""
    return _framed("header.h", f"{interface}_header.h", "@INTERFACE@", said)


def filled(template: str, values: Mapping[str, str]) -> str:
    """A template with these values in place of their keys, in one pass: a key inside of a value stays."""
    return re.sub("|".join(map(re.escape, values)), lambda key: values[key[0]], template)


def _framed(frame: str, inside: str, place: str, said: dict[str, Any]) -> str:
    """A file that all tasks share, with what a task adds: the comment at the beginning, and the rest."""
    about, end, rest = piece(inside).partition("*/\n")
    text = piece(frame).replace("@ABOUT@", about + end).replace(place, rest.strip("\n"))
    for key, part in (said | {"READ_LINES": piece("lines_example.c")}).items():
        text = text.replace(f"@{key}@", str(part))
    return text


def language_parts(model: LanguageModel, tokenizer: Tokenizer, weights: Weights) -> Parts:
    """The parts of a language model. Raises as `written`."""
    constants, layers = (recurrent_parts if model.context is None else transformer_parts)(model, weights)
    size = tokenizer.vocabulary_size
    constants |= token_texts(tokenizer, [symbol(tokenizer, id) for id in range(size)], weights) | {
        "D_VECTOR": model.features.d_out,
        "SCALE": model.features.scale,
        "START": tokenizer.start_id,
        "HAS_UNKNOWN": int(tokenizer.unknown_id == 0),
        "AT_VECTORS": weights.add_rows(model.features.weight),
    }
    lexer = lexer_pieces(tokenizer, weights, constants)
    return Parts(
        constants,
        ["stored.h", "rows.h", "utf8.h", "sink.h", *lexer, "sampling.h", *layers, "blanks.h", "language.h"],
        interface="language",
        said={"VOCABULARY": size, "CONTEXT": model.context or 0},
        usage=USAGE,
    )


def recurrent_parts(model: LanguageModel, weights: Weights) -> tuple[dict[str, Any], list[str]]:
    """The constants and pieces of recurrent layers. Raises `Untraceable`."""
    step = printed_step(TokenScores(model), weights)
    constants = {
        "CONTEXT": 0,
        "ROWS": 1,
        "LEAVES": step.leaves,
        "HOISTED": step.hoisted,
        "WORK": model.features.d_out + step.hoisted + step.work,
        "AT_LEAVES": weights.add(step.first),
    }
    return constants, [step.text, "recurrent.h"]


TASKS: dict[str, Callable[[Any, Weights], Parts]] = {
    LANGUAGE: lambda pipeline, weights: language_parts(pipeline.model, pipeline.tokenizer, weights),
    "classification": classifier_parts,
    "labeling": tagger_parts,
    "sequence-to-sequence": transducer_parts,
    "frame-classification": frame_classifier_parts,
    "frame-labeling": frame_tagger_parts,
}
"""The parts of the model of a task."""


def _place(embed: bool) -> str:
    return "this file" if embed else "NAME.weights"


def _embedded(numbers: NDArray[np.uint32]) -> str:
    rows = (", ".join(f"{number:#x}" for number in row) for row in numbers.reshape(-1, 16).tolist())
    return "static _Alignas(64) const uint32_t EMBEDDED[] = {\n" + ",\n".join(rows) + "};\n"


def _readme(run: RunDirectory, name: str, usage: str, card: str, embed: bool, notes: list[str]) -> str:
    return f"""# {name}

A {run.recipe.what} ({run.recipe.describe()}) as C, written by `ensue export --format c` of ensue {VERSION}. It needs a
compiler for C11 and its mathematics library, and nothing else. `{name}.h` says what each function does.

    make
{filled(usage, {"NAME": name})}
{"The weights are inside of `{name}.c`." if embed else WEIGHTS.format(name)}

{"".join(f"{note}{chr(10) * 2}" for note in notes)}License of the model: {license_in(card)}.

{"The card of the run follows." if card else "The run has no card."}

{card}"""
