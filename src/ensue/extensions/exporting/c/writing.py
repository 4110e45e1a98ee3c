"""A model as a folder of C: the interface, the model, its weights, an example program and build files."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, cast

import torch

from ensue.engine.trace import Untraceable
from ensue.errors import EnsueError
from ensue.extensions.exporting.c.classifying import classifier_parts
from ensue.extensions.exporting.c.precision import (
    F32,
    PRECISIONS,
    Proof,
    compare_answers,
    compare_classes,
    compare_frames,
    compare_nats,
    compare_series,
    compare_tags,
    measured,
    validation_documents,
    validation_sentences,
    validation_series,
    validation_sources,
    validation_text,
)
from ensue.extensions.exporting.c.printing import Parts, TokenScores, Weights, checksum, functions, piece, printed_step
from ensue.extensions.exporting.c.series import series_classifier_parts, series_tagger_parts
from ensue.extensions.exporting.c.tagging import tagger_parts
from ensue.extensions.exporting.c.tokens import lexer_pieces, symbol, token_texts
from ensue.extensions.exporting.c.transducing import transducer_parts
from ensue.extensions.exporting.c.transformer import transformer_parts
from ensue.extensions.exporting.exported import missing_options, write_directory
from ensue.runs.directory import RunDirectory
from ensue.tasks.contract.description import (
    ClassOutput,
    ModelDescription,
    SeriesInput,
    SourceInput,
    TagOutput,
    TextOutput,
    TokenInput,
    TokenOutput,
    WordInput,
)
from ensue.version import VERSION

CAN = (
    "C has language models with recurrent layers or Transformers whose tokens are characters, bytes, subwords of bytes "
    "or words, taggers of words or frames with recurrent layers, classifiers of them with such layers or of texts by "
    "n-grams, and encoder-decoders of such tokens with recurrent layers"
)
_LICENSE = re.compile(r"^license: *(\S+)$", re.M)
WEIGHTS = """\
The program reads `{0}.weights` beside it. If it is called by a name without a folder, as one of the `PATH`, it looks in
the present folder. `./{0} --weights FILE` names another place. With `ensue export --embed` there is no such file."""
USAGE = """\
    ./NAME < text.txt                                the surprisal of each token
    printf 'The ' | ./NAME --generate 200 1 0.8      200 tokens, seed 1, temperature 0.8
"""
SAMPLING = ("temperature", "top_k", "top_p", "min_p", "repetition_penalty")
"""The options of sampling.h."""
_RESERVED = re.compile(
    "(?i)example|(gnu)?makefile|all|all_build|clean|edit_cache|help|install|preinstall|rebuild_cache|zero_check|m|float|"
    "immintrin|math|stddef|stdint|stdio|stdlib|string|add|at|cut|end|expression|filter|is|lexer|make|mark|merges|most|"
    "next|read|reads|subwords|usual|utf8|wasm_simd128|wide|word"
)
"""Reserved names: other files, targets of CMake, libraries, headers, and prefixes of names inside of the C file."""


def export_c(
    run: RunDirectory, description: ModelDescription, out: Path, *, embed: bool = False, precision: str = F32,
    overwrite: bool = False,
) -> list[str]:  # fmt: skip
    """Write a model as C; the effect of a `precision` is measured. The options are those of `export_run`. Raises
    EnsueError for a model that cannot be printed as C.
    """
    name = name_for(out)
    contents, usage, notes = printed(run, description, name, embed=embed, precision=precision)
    contents["README.md"] = _readme(run, name, usage, card_of(run), embed, notes).encode()
    write_directory(out, contents, overwrite=overwrite)
    size = sum(map(len, contents.values()))
    return [*notes, f"{out}: {len(contents)} files, {size:,} bytes; `make -C {out}` compiles the example"]


class Printed(NamedTuple):
    """The files of a model without README.md, how the program is called, and notes on options and precision."""

    files: dict[str, bytes]
    usage: str
    notes: list[str]


def printed(
    run: RunDirectory, description: ModelDescription, name: str, *, embed: bool = False, precision: str = F32
) -> Printed:
    """Return a model as C. Raises EnsueError for one that cannot be printed."""
    if (interface := INTERFACES.get(description.kinds)) is None:
        raise EnsueError(f"{run.path}: a {run.recipe.what} cannot be exported as C; {CAN}")
    try:
        weights = Weights(precision=precision)
        parts = interface.parts(description, weights)
        files = assembled(parts, weights, name, embed=embed)
    except (Untraceable, ValueError) as reason:
        raise EnsueError(f"{run.path}: cannot be exported as C ({run.recipe.describe()}): {reason}; {CAN}") from None
    notes = parts.notes
    if precision != F32:
        pipeline = run.entry.pipeline_class.of(run, torch.device("cpu"))
        notes = [*notes, measured(run, pipeline, interface.proof, files, name, precision)]
    return Printed(files, parts.usage, notes)


def name_for(out: Path) -> str:
    """Return the name of a directory as an identifier of C that is not reserved."""
    name = re.sub(r"\W", "_", out.resolve().name, flags=re.A)
    return name if name[:1].isalpha() and not _RESERVED.fullmatch(name) else f"model_{name}"


def card_of(run: RunDirectory) -> str:
    """Return the text of the card of a run; empty without a card."""
    card = run.path / "README.md"
    return card.read_text("utf-8", "replace") if card.is_file() else ""


def license_in(card: str) -> str:
    """Return the license that a card names, or a sentence that the card names none."""
    match = _LICENSE.search(card)
    return match[1] if match else "not named in the card of the run; ask who made it before you pass it on"


def assembled(parts: Parts, weights: Weights, name: str, *, embed: bool = False) -> dict[str, bytes]:
    """Return the files of a model without README.md; their names begin with `name`."""
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
    if embed:
        rows = (", ".join(f"{number:#x}" for number in row) for row in numbers.reshape(-1, 16).tolist())
        texts.append("static _Alignas(64) const uint32_t EMBEDDED[] = {\n" + ",\n".join(rows) + "};\n")
    texts += [functions(), piece("weights.h")]
    replaced = {"rows.h": "whole.h"} if weights.precision == "int8" else {}
    texts += [piece(replaced.get(part, part)) if part.endswith(".h") else part for part in parts.pieces]
    templates = {
        "NAME.h": header(parts.interface, parts.values),
        "NAME.c": "\n".join(texts),
        "example.c": _framed("example.c", f"{parts.interface}_example.c", "@TASK@", parts.values),
        **{file: piece(file) for file in ("Makefile", "CMakeLists.txt")},
    }
    values = {"NAME": name} | {f"@{key}@": text for key, text in parts.texts.items()}
    files = {filled(file, values): filled(text, values).encode() for file, text in templates.items()}
    return files if embed else files | {f"{name}.weights": numbers.tobytes()}


def header(interface: str, values: dict[str, Any]) -> str:
    """Return NAME.h of an interface."""
    return _framed("header.h", f"{interface}_header.h", "@INTERFACE@", values)


def filled(template: str, values: Mapping[str, str]) -> str:
    """Return a template with values in place of their keys, in one pass: a key inside of a value is not replaced."""
    return re.sub("|".join(map(re.escape, values)), lambda key: values[key[0]], template)


def _framed(frame: str, inside: str, place: str, values: dict[str, Any]) -> str:
    """Return a file that all interfaces share, with the comment and the code that an interface adds."""
    about, end, rest = piece(inside).partition("*/\n")
    text = piece(frame).replace("@ABOUT@", about + end).replace(place, rest.strip("\n"))
    for key, part in (values | {"READ_LINES": piece("lines_example.c")}).items():
        text = text.replace(f"@{key}@", str(part))
    return text


def language_parts(description: ModelDescription, weights: Weights) -> Parts:
    """Return a language model as C. Raises `Untraceable` or ValueError for layers or tokenizers without C."""
    model, tokenizer = cast(Any, description.model), cast(TokenInput, description.input).tokenizer
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
        values={"VOCABULARY": size, "CONTEXT": model.context or 0},
        usage=USAGE,
        notes=missing_options(cast(TokenOutput, description.output).sampling, "C", SAMPLING),
    )


def recurrent_parts(model: Any, weights: Weights) -> tuple[dict[str, Any], list[str]]:
    """Return the constants and pieces of recurrent layers. Raises `Untraceable`."""
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


class Interface(NamedTuple):
    """How C has models of one kind of input and one kind of output."""

    parts: Callable[[ModelDescription, Weights], Parts]
    proof: Proof


INTERFACES: dict[tuple[type, type], Interface] = {
    (TokenInput, TokenOutput): Interface(language_parts, Proof(validation_text, [], compare_nats)),
    (WordInput, ClassOutput): Interface(classifier_parts, Proof(validation_documents, [], compare_classes)),
    (WordInput, TagOutput): Interface(tagger_parts, Proof(validation_sentences, ["--probabilities"], compare_tags)),
    (SourceInput, TextOutput): Interface(
        transducer_parts, Proof(validation_sources, ["--n-best", "1"], compare_answers)
    ),
    (SeriesInput, ClassOutput): Interface(series_classifier_parts, Proof(validation_series, [], compare_series)),
    (SeriesInput, TagOutput): Interface(
        series_tagger_parts, Proof(validation_series, ["--probabilities"], compare_frames)
    ),
}
"""The interfaces by the kinds of input and output of a description."""


def _place(embed: bool) -> str:
    return "this file" if embed else "NAME.weights"


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
