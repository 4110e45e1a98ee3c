"""Weights in fewer bits, and the effect on answers of the model."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Callable
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from ensue.engine.c_library import compiler, compiler_flags
from ensue.errors import DataError, EnsueError
from ensue.runs.directory import RunDirectory

F32 = "f32"
PRECISIONS = {F32: 32, "f16": 16, "int8": 8}
"""Bits of each number of a matrix."""
MAX_CHARACTERS = MAX_WORDS = 20_000
"""The part of the validation data that is read: of a text, and of sentences, short texts and series."""
PANEL = 16
"""The columns of a panel of rows.h and of whole.h."""
MAX_SOURCE_CHARACTERS = 8_000
"""The characters of sources that are read for an encoder–decoder, whose search takes longer."""


def stored(matrix: Tensor, precision: str, axis: int, *, in_panels: bool = False) -> bytes:
    """Return a matrix (rows, columns) as stored.h reads it, or in panels as `multiply` does. Integers follow a factor
    for each column (axis 0) or row (axis 1). Raises ValueError for numbers out of the range of the precision.
    """
    numbers: NDArray[np.float32] = matrix.detach().cpu().float().numpy()
    factors, cells = b"", numbers.astype(np.dtype("<f4"))
    if precision != F32:
        with np.errstate(over="ignore", invalid="ignore"):
            if not np.isfinite(cells := numbers.astype("<f2")).all():
                raise ValueError(f"a weight is {np.abs(numbers).max():,.6g}, too large for {precision}")
    if PRECISIONS[precision] == 8:
        largest = np.abs(numbers).max(axis, keepdims=True, initial=0)
        sizes: NDArray[np.float32] = np.where(largest > 0, largest / 127, 1).astype("<f4")
        factors, cells = sizes.tobytes(), np.rint(numbers / sizes).astype(np.int8)
    return factors + (panels(cells, 2 if factors else 1) if in_panels else cells).tobytes()


def panels(matrix: NDArray[Any], beside: int) -> NDArray[Any]:
    """Return panels of PANEL columns, in which `beside` rows stand side by side, with zeros at the ends."""
    matrix = np.pad(matrix, [(0, -len(matrix) % beside), (0, -matrix.shape[1] % PANEL)])
    return matrix.reshape(len(matrix) // beside, beside, -1, PANEL).transpose(2, 0, 3, 1)


class Proof(NamedTuple):
    """How a precision is measured on the models of one interface."""

    inputs: Callable[[RunDirectory, Callable[[Any, Any], Any] | None], list[Any]]
    """From a run, and from the `data_set` of its description, to inputs of the validation data."""
    arguments: list[str]
    """The arguments of the program."""
    compare: Callable[[Any, list[Any], list[str]], str]
    """From a pipeline, its inputs and the lines of the program to a sentence."""


def measured(run: RunDirectory, pipeline: Any, proof: Proof, files: dict[str, bytes], name: str, precision: str) -> str:
    """Return a sentence about the effect of a precision on answers to validation data.

    Args:
        run: The run, whose recipe names the data.
        pipeline: The model with numbers of 32 bits.
        proof: How answers are compared.
        files: The C files, which are compiled and run.
        name: The beginning of their names.
        precision: The precision of their matrices.
    """
    here = f"Matrices and tables are {precision}. "
    command, inputs = compiler(), proof.inputs(run, pipeline.describe().data_set)
    if command is None or not inputs:
        why = "there is no validation text" if command else "there is no C compiler"
        return f"{here}What that changes was not measured: {why}."
    options = [flag for flag in (*compiler_flags(), "-ffp-contract=off") if flag not in ("-shared", "-fPIC")]
    with tempfile.TemporaryDirectory() as folder:
        for file, content in files.items():
            Path(folder, file).write_bytes(content)
        compiling = [*command, *options, "-o", "program", "example.c", f"{name}.c", "-lm"]
        reading = [f"{folder}/program", *proof.arguments]
        try:
            subprocess.run(compiling, cwd=folder, capture_output=True, check=True)
            lines = "\n".join(_line(part, Path(folder, f"{number}.npy")) for number, part in enumerate(inputs))
            output = subprocess.run(reading, input=lines.encode(), capture_output=True, check=True).stdout
        except (OSError, subprocess.CalledProcessError):
            return f"{here}What that changes was not measured: the program could not be compiled and run."
    return here + proof.compare(pipeline, inputs, output.decode().removesuffix("\n").split("\n"))


def _line(part: Any, place: Path) -> str:
    """Return the line of stdin with a text, or with the file of a series."""
    if isinstance(part, str):
        return part
    np.save(place, part)
    return str(place)


def compare_nats(pipeline: Any, texts: list[str], lines: list[str]) -> str:
    """Compare the nats of the tokens of a text."""
    fewer = np.mean([float(line.split()[0]) for line in lines])
    before = np.mean([token.nats for token in pipeline.score(texts[0])])
    return (
        f"The first {len(texts[0]):,} characters of the validation text have {fewer:.4f} nats per token, and "
        f"{before:.4f} with numbers of 32 bits ({round(fewer / before - 1, 4) + 0:+.2%})."
    )


def compare_tags(pipeline: Any, texts: list[str], lines: list[str]) -> str:
    """Compare the labels of words."""
    before = [word for sentence in pipeline.predict(texts, confidence=True) for word in sentence]
    fewer = [line.split("\t")[-2:] for line in lines if line]
    return _same("words", fewer, [(word.label, word.confidence) for word in before])


def compare_classes(pipeline: Any, texts: list[str], lines: list[str]) -> str:
    """Compare the labels of texts."""
    pairs = pipeline.num_texts == 2
    before = pipeline.predict([tuple(text.split("\t")) for text in texts] if pairs else texts)
    fewer = [line.split("\t")[2 * pairs :][:2] for line in lines]
    return _same("texts", fewer, [(",".join(text.labels), max(text.probabilities.values())) for text in before])


def compare_answers(pipeline: Any, texts: list[str], lines: list[str]) -> str:
    """Compare the answers of an encoder–decoder."""
    from ensue.tasks.sequence_to_sequence.writer import on_one_line  # noqa: PLC0415

    before = pipeline.with_search(n_best=1).predict([tuple(text.split("\t")) for text in texts])
    same = np.mean([line == on_one_line(answer.text) for line, answer in zip(lines, before, strict=True)])
    return (
        f"Of the answers to the first {len(before):,} sources of the validation data, {100 * same:.2f} % are the same "
        "as with numbers of 32 bits."
    )


def compare_series(pipeline: Any, series: list[Any], lines: list[str]) -> str:
    """Compare the labels of series."""
    before = [(" ".join(one.labels) or "-", one.probability) for one in pipeline.predict(series)]
    return _same("series", [line.split("\t")[1:] for line in lines], before)


def compare_frames(pipeline: Any, series: list[Any], lines: list[str]) -> str:
    """Compare the labels of the vectors of series."""
    answers = pipeline.predict(series, confidence=True)
    before = [pair for one in answers for pair in zip(one.labels, one.probabilities, strict=True)]
    rows = [[part.split(" ") for part in line.split("\t")[1:]] for line in lines]
    return _same("frames", [list(pair) for row in rows for pair in zip(*row, strict=True)], before)


def _same(what: str, fewer: list[list[str]], before: list[tuple[str, float]]) -> str:
    same = sum(one[0] == other[0] for one, other in zip(fewer, before, strict=True)) / len(before)
    changes = [abs(float(one[1].partition(",")[0]) - other[1]) for one, other in zip(fewer, before, strict=True)]
    return (
        f"Of the first {len(before):,} {what} of the validation data, {100 * same:.2f} % have the same label as with "
        f"numbers of 32 bits; the probability of the label changes by {np.mean(changes):.4f} on average."
    )


def validation_sentences(run: RunDirectory, data_set: Any) -> list[str]:
    """Return some sentences, with blanks between the words."""
    texts = _validation_data(run, data_set)
    return [] if texts is None else _first(texts.texts, MAX_WORDS)


def validation_documents(run: RunDirectory, data_set: Any) -> list[str]:
    """Return some texts, or pairs with a tab between them."""
    data = _validation_data(run, data_set)
    columns = [] if data is None else [_first(texts, MAX_WORDS) for texts in data.texts]
    return ["\t".join(row) for row in zip(*columns, strict=False)]


def validation_sources(run: RunDirectory, _: Any) -> list[str]:
    """Return some sources, each with tabs between its texts."""
    from ensue.data.examples import PairLayout, PairSource  # noqa: PLC0415
    from ensue.tasks.sequence_to_sequence.job import SequenceToSequenceJob  # noqa: PLC0415
    from ensue.tasks.sequence_to_sequence.pipeline import references  # noqa: PLC0415

    recipe: Any = run.recipe
    layout, data = PairLayout.from_json(run.config["layout"]), recipe.data
    try:
        if data.valid:
            pairs = references(PairSource(data.valid, like=layout, encoding=data.encoding), layout)
        else:
            pairs = [*SequenceToSequenceJob(recipe, run).valid_pairs]
    except EnsueError:
        return []
    lines = ["\t".join(" ".join(text.split()) for text in pair.sources) for pair in pairs]
    return [
        line for line, size in zip(lines, accumulate(map(len, lines)), strict=True) if size <= MAX_SOURCE_CHARACTERS
    ]


def validation_series(run: RunDirectory, data_set: Any) -> list[Any]:
    """Return some series."""
    data = _validation_data(run, data_set)
    if data is None:
        return []
    count = np.searchsorted(data.rows.starts, MAX_WORDS, side="right") - 1
    return [data.rows[row] for row in range(count)]


def _first(texts: Any, words: int) -> list[str]:
    """Return the first texts with up to `words` words together, each in one line."""
    lines: list[str] = []
    for text in texts:
        words -= len(text)
        if words < 0:
            break
        lines.append(" ".join(" ".join(text).split()))
    return lines


def _validation_data(run: RunDirectory, data_set: Any) -> Any:
    """Return the validation examples of a run, or None if it has none, or if they cannot be read."""
    data: Any = run.recipe.data
    alone = {"train": data.valid, "valid": "", "valid_fraction": 0.0} if data.valid else {}
    recipe = run.recipe.model_copy(update={"data": data.model_copy(update={**alone, "test": ""})})
    try:
        split = data_set(recipe, run).split
        return split.train if alone else split.valid
    except EnsueError:
        return None


def validation_text(run: RunDirectory, _: Any) -> list[str]:
    """Return the beginning of the validation text, or nothing if the run has none, or if it is not there."""
    from ensue.data.sources import TextSource  # noqa: PLC0415
    from ensue.tasks.texts.corpus import training_characters, training_source  # noqa: PLC0415

    data: Any = run.recipe.data
    try:
        if data.valid:
            source, start = TextSource(data.valid, encoding=data.encoding), 0
        elif data.valid_fraction:
            source = training_source(data)
            start = training_characters(source.count_characters(), data, run) or 0
        else:
            return []
        text = "".join(source.chunks(start, start + MAX_CHARACTERS))
        return [text] if text else []
    except DataError:
        return []
