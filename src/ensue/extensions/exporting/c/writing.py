"""Export of a model to a folder with a C header, C code, weights, an example program, and build files."""

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, cast

import torch

from ensue.engine.trace import Untraceable
from ensue.errors import EnsueError
from ensue.extensions.exporting.c import precision as measures
from ensue.extensions.exporting.c import printing
from ensue.extensions.exporting.c.classifying import classifier_source
from ensue.extensions.exporting.c.precision import F32, PRECISIONS, Validation, measure_precision
from ensue.extensions.exporting.c.series import series_classifier_source, series_tagger_source
from ensue.extensions.exporting.c.tagging import tagger_source
from ensue.extensions.exporting.c.tokens import detokenizer_constants, lexer_templates, token_bytes
from ensue.extensions.exporting.c.transducing import transducer_source
from ensue.extensions.exporting.c.transformer import transformer_source
from ensue.extensions.exporting.exporting import missing_options, write_directory
from ensue.runs.directory import RunDirectory
from ensue.tasks.contract import description as contract
from ensue.tasks.contract.description import ModelDescription
from ensue.version import VERSION

SUPPORTED = (
    "the C export supports recurrent language models and Transformers of characters, bytes, subwords of bytes or "
    "words; recurrent taggers of words or frames; classifiers of texts or frames with recurrent layers, or of texts by "
    "n-grams; and recurrent encoder-decoders with these tokens. --format onnx has most other models"
)
_LICENSE = re.compile(r"^license: *(\S+)$", re.M)
WEIGHTS = """\
The program reads `{0}.weights` from its folder, or from the current folder if the shell finds the program by `PATH`.
`./{0} --weights FILE` reads another file. `ensue export --embed` writes the weights into `{0}.c` instead."""
USAGE = """\
    ./NAME < text.txt                                the surprisal of each token
    printf 'The ' | ./NAME --generate 200 1 0.8      200 tokens, seed 1, temperature 0.8
"""
SAMPLING = ("temperature", "top_k", "top_p", "min_p", "repetition_penalty")
"""The sampling options that sampling.h implements."""
_RESERVED = re.compile(
    "(?i)example|(gnu)?makefile|all|all_build|clean|edit_cache|help|install|preinstall|rebuild_cache|zero_check|m|float|"
    "immintrin|math|stddef|stdint|stdio|stdlib|string|add|at|cut|default|end|expression|filter|is|lexer|make|mark|"
    "max(_form|_token|_word|_written)?|merges|next|read|reads|subwords|utf8|wasm_simd128|wide|word"
)
"""The pattern of reserved names: files, CMake targets, libraries, headers, and prefixes of names in the C file."""


def export_c(
    run: RunDirectory, description: ModelDescription, out: Path, *, embed: bool = False, precision: str = F32,
    overwrite: bool = False,
) -> list[str]:  # fmt: skip
    """Write a model as C, with the options of `export_run`. Raises EnsueError for an unsupported model."""
    name = identifier(out)
    contents, usage, notes = print_c(run, description, name, embed=embed, precision=precision)
    contents["README.md"] = _readme(run, name, usage, embed, notes).encode()
    write_directory(out, contents, overwrite=overwrite)
    size = sum(map(len, contents.values()))
    return [*notes, f"{out}: {len(contents)} files, {size:,} bytes; `make -C {out}` compiles the example"]


def print_c(
    run: RunDirectory, description: ModelDescription, name: str, *, embed: bool = False, precision: str = F32
) -> tuple[dict[str, bytes], str, list[str]]:
    """Return the files of a model without README.md, its usage, and notes. Raises EnsueError if it is unsupported."""
    if (interface := INTERFACES.get(description.kinds)) is None:
        raise EnsueError(f"{run.path}: a {run.recipe.what} cannot be exported as C; {SUPPORTED}")
    try:
        weights = printing.Weights(precision=precision)
        model = interface.source(description, weights)
        files = assemble(model, weights, name, embed=embed)
    except (Untraceable, ValueError) as reason:
        raise EnsueError(
            f"{run.path}: cannot be exported as C ({run.recipe.describe()}): {reason}; {SUPPORTED}"
        ) from None
    notes = model.notes
    if precision != F32:
        pipeline = run.entry.pipeline_class.of(run, torch.device("cpu"))
        notes = [*notes, measure_precision(run, pipeline, interface.validation, files, name, precision)]
    return files, model.usage, notes


def identifier(out: Path) -> str:
    """Return the name of a directory as a C identifier that is not reserved."""
    name = re.sub(r"\W", "_", out.resolve().name, flags=re.A)
    return name if name[:1].isalpha() and not _RESERVED.fullmatch(name) else f"model_{name}"


def find_license(card: str) -> str:
    """Return the license in the card of a run, or a notice that the card has none."""
    match = _LICENSE.search(card)
    return match[1] if match else "not named in the card of the run; ask the author before you redistribute it"


def assemble(model: printing.CModel, weights: printing.Weights, name: str, *, embed: bool = False) -> dict[str, bytes]:
    """Return the files of a model without README.md, with `name` in the names of the files."""
    numbers = weights.padded_content()
    constants = weights.constants | {
        "WORDS": len(numbers), "IS_EMBEDDED": int(embed), "PRECISION": PRECISIONS[weights.precision],
    }  # fmt: skip
    define = [f"#define {key} {value}" for key, value in constants.items()]
    define.append(f"#define CHECKSUM UINT64_C({printing.checksum(numbers)})\n")
    file = "this file" if embed else "NAME.weights"
    about = f"/* Written by ensue {VERSION}. NAME.h documents the functions; the weights are in {file}. */\n"
    texts = [about + '#include "NAME.h"\n', printing.read_template("prelude.h"), "\n".join(define)]
    if embed:
        rows = (", ".join(f"{number:#x}" for number in row) for row in numbers.reshape(-1, 16).tolist())
        texts.append("static _Alignas(64) const uint32_t EMBEDDED[] = {\n" + ",\n".join(rows) + "};\n")
    texts += [printing.math_functions(), printing.read_template("weights.h")]
    int8 = {"rows.h": "rows_int8.h"} if weights.precision == "int8" else {}
    texts += [printing.read_template(int8.get(code, code)) if code.endswith(".h") else code for code in model.templates]
    contents = {
        "NAME.h": header(model.interface, model.values),
        "NAME.c": "\n".join(texts),
        "example.c": _insert("example.c", f"{model.interface}_example.c", "@TASK@", model.values),
        **{file: printing.read_template(file) for file in ("Makefile", "CMakeLists.txt")},
    }
    values = {"NAME": name} | {f"@{key}@": text for key, text in model.texts.items()}
    files = {fill_template(file, values): fill_template(text, values).encode() for file, text in contents.items()}
    return files if embed else files | {f"{name}.weights": numbers.tobytes()}


def header(interface: str, values: dict[str, Any]) -> str:
    """Return the header of an interface."""
    return _insert("header.h", f"{interface}_header.h", "@INTERFACE@", values)


def fill_template(template: str, values: Mapping[str, str]) -> str:
    """Replace keys by values in one pass, so that keys within values are not replaced."""
    return re.sub("|".join(map(re.escape, values)), lambda key: values[key[0]], template)


def _insert(frame: str, template: str, placeholder: str, values: dict[str, Any]) -> str:
    """Insert a template into a frame: the first comment at `@ABOUT@`, and the rest of the template at `placeholder`."""
    about, end, rest = printing.read_template(template).partition("*/\n")
    text = printing.read_template(frame).replace("@ABOUT@", about + end).replace(placeholder, rest.strip("\n"))
    for key, value in (values | {"READ_LINES": printing.read_template("lines_example.c")}).items():
        text = text.replace(f"@{key}@", str(value))
    return text


def language_source(description: ModelDescription, weights: printing.Weights) -> printing.CModel:
    """Return the C source of a language model. Raises `Untraceable` or ValueError for an unsupported model."""
    model, tokenizer = cast(Any, description.model), cast(contract.TokenInput, description.input).tokenizer
    layers = (recurrent_source if model.context is None else transformer_source)(model, weights)
    size = tokenizer.vocabulary_size
    texts = [token_bytes(tokenizer, id) for id in range(size)]
    weights.constants |= detokenizer_constants(tokenizer, texts, weights) | {
        "D_VECTOR": model.features.d_out, "SCALE": model.features.scale, "START": tokenizer.start_id,
        "HAS_UNKNOWN": int(tokenizer.unknown_id == 0), "AT_VECTORS": weights.add_rows(model.features.weight),
    }  # fmt: skip
    lexer = lexer_templates(tokenizer, weights)
    return printing.CModel(
        ["stored.h", "rows.h", "utf8.h", "sink.h", *lexer, "sampling.h", *layers, "blanks.h", "language.h"],
        interface="language", values={"VOCABULARY": size, "CONTEXT": model.context or 0}, usage=USAGE,
        notes=missing_options(cast(contract.TokenOutput, description.output).sampling, SAMPLING),
    )  # fmt: skip


def recurrent_source(model: Any, weights: printing.Weights) -> list[str]:
    """Return the templates of recurrent layers. Raises `Untraceable`."""
    step = printing.print_step(printing.TokenScores(model), weights)
    weights.constants |= {
        "CONTEXT": 0, "ROWS": 1, "LEAVES": step.leaves, "HOISTED": step.hoisted,
        "WORK": model.features.d_out + step.hoisted + step.work, "AT_LEAVES": weights.add(step.initial),
    }  # fmt: skip
    return [step.text, "recurrent.h"]


class Interface(NamedTuple):
    """The functions for models with one kind of input and output: the C source, and the measurement of precision."""

    source: Callable[[ModelDescription, printing.Weights], printing.CModel]
    validation: Validation


INTERFACES: dict[tuple[type, type], Interface] = {
    (contract.TokenInput, contract.TokenOutput): Interface(language_source, measures.LANGUAGE),
    (contract.WordInput, contract.ClassOutput): Interface(classifier_source, measures.CLASSES),
    (contract.WordInput, contract.TagOutput): Interface(tagger_source, measures.TAGS),
    (contract.SourceInput, contract.TextOutput): Interface(transducer_source, measures.ANSWERS),
    (contract.SeriesInput, contract.ClassOutput): Interface(series_classifier_source, measures.SERIES),
    (contract.SeriesInput, contract.TagOutput): Interface(series_tagger_source, measures.FRAMES),
}
"""The interfaces by the kinds of input and output of a model's description."""


def _readme(run: RunDirectory, name: str, usage: str, embed: bool, notes: list[str]) -> str:
    return f"""# {name}

A {run.recipe.what} ({run.recipe.describe()}) as C, written by `ensue export --format c` of ensue {VERSION}. It needs a
compiler for C11 and its mathematics library, and nothing else. `{name}.h` documents the functions.

    make
{fill_template(usage, {"NAME": name})}
{"The weights are in `{name}.c`." if embed else WEIGHTS.format(name)}

{"".join(f"{note}{chr(10) * 2}" for note in notes)}License of the model: {find_license(run.card)}.

{"The card of the run follows." if run.card else "The run has no card."}

{run.card}"""
