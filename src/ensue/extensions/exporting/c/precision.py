"""Weights in float16 and int8, and the measurement of their effect on answers to validation data."""

import subprocess
import tempfile
from collections.abc import Callable
from itertools import accumulate, takewhile
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
"""The number of bits of a matrix element."""
MAX_CHARACTERS = MAX_WORDS = 20_000
"""The maximum size of the validation data: characters of a language model, and words or frames of other models."""
PANEL_COLUMNS = 16
"""The number of columns of a panel in rows.h and rows_int8.h."""
MAX_SOURCE_CHARACTERS = 8_000
"""The maximum size of the sources of an encoder-decoder. It is below `MAX_CHARACTERS`, since beam search is slow."""


def encode_matrix(matrix: Tensor, precision: str, axis: int, *, in_panels: bool = False) -> bytes:
    """Return a matrix (rows, columns) in the format of stored.h, or in panels for `multiply`.

    int8 numbers follow the scales of columns (`axis` 0) or rows (1). Raises ValueError for numbers out of range.
    """
    numbers: NDArray[np.float32] = matrix.detach().cpu().float().numpy()
    scales, elements = b"", numbers.astype(np.dtype("<f4"))
    if precision != F32:
        with np.errstate(over="ignore", invalid="ignore"):
            if not np.isfinite(elements := numbers.astype("<f2")).all():
                raise ValueError(f"a weight is {np.abs(numbers).max():,.6g}, too large for {precision}")
    if PRECISIONS[precision] == 8:
        largest = np.abs(numbers).max(axis, keepdims=True, initial=0)
        scale: NDArray[np.float32] = np.where(largest > 0, largest / 127, 1).astype("<f4")
        scales, elements = scale.tobytes(), np.rint(numbers / scale).astype(np.int8)
    return scales + (to_panels(elements, 2 if scales else 1) if in_panels else elements).tobytes()


def to_panels(matrix: NDArray[Any], num_interleaved: int) -> NDArray[Any]:
    """Return zero-padded panels of PANEL_COLUMNS columns, with `num_interleaved` rows interleaved."""
    matrix = np.pad(matrix, [(0, -len(matrix) % num_interleaved), (0, -matrix.shape[1] % PANEL_COLUMNS)])
    return matrix.reshape(len(matrix) // num_interleaved, num_interleaved, -1, PANEL_COLUMNS).transpose(2, 0, 3, 1)


class Validation(NamedTuple):
    """The comparison of the answers of a C program and of the model, for one interface."""

    inputs: Callable[[RunDirectory, Callable[[Any, Any], Any] | None], list[Any]]
    """A function from (run, `data_set` of its description) to inputs from the validation data."""
    arguments: list[str]
    """The arguments of the example program."""
    compare: Callable[[Any, list[Any], list[str]], str]
    """A function from (pipeline, inputs, output lines of the program) to a sentence about the differences."""


def measure_precision(
    run: RunDirectory, pipeline: Any, validation: Validation, files: dict[str, bytes], name: str, precision: str
) -> str:
    """Return a sentence about the effect of a precision on answers to validation data."""
    prefix = f"Matrices and tables are {precision}. "
    command, inputs = compiler(), validation.inputs(run, pipeline.describe().data_set)
    if command is None or not inputs:
        reason = "there is no validation text" if command else "there is no C compiler"
        return f"{prefix}The effect was not measured: {reason}."
    options = [flag for flag in (*compiler_flags(), "-ffp-contract=off") if flag not in ("-shared", "-fPIC")]
    with tempfile.TemporaryDirectory() as folder:
        for file, content in files.items():
            Path(folder, file).write_bytes(content)
        compile_command = [*command, *options, "-o", "program", "example.c", f"{name}.c", "-lm"]
        run_command = [f"{folder}/program", *validation.arguments]
        try:
            subprocess.run(compile_command, cwd=folder, capture_output=True, check=True)
            lines = "\n".join(_make_line(text, Path(folder, f"{number}.npy")) for number, text in enumerate(inputs))
            output = subprocess.run(run_command, input=lines.encode(), capture_output=True, check=True).stdout
        except (OSError, subprocess.CalledProcessError):
            return f"{prefix}The effect was not measured: the program could not be compiled and run."
    return prefix + validation.compare(pipeline, inputs, output.decode().removesuffix("\n").split("\n"))


def _make_line(value: Any, path: Path) -> str:
    """Return a text itself; save a series, and return its path."""
    if isinstance(value, str):
        return value
    np.save(path, value)
    return str(path)


def compare_nats(pipeline: Any, texts: list[str], lines: list[str]) -> str:
    """Compare the surprisal of a language model."""
    rounded = np.mean([float(line.split()[0]) for line in lines])
    exact = np.mean([token.nats for token in pipeline.score(texts[0])])
    return (
        f"The first {len(texts[0]):,} characters of the validation text have {rounded:.4f} nats per token, and "
        f"{exact:.4f} with numbers of 32 bits ({round(rounded / exact - 1, 4) + 0:+.2%})."
    )


def compare_tags(pipeline: Any, texts: list[str], lines: list[str]) -> str:
    """Compare the labels of words."""
    exact = [word for sentence in pipeline.predict(texts, confidence=True) for word in sentence]
    rounded = [line.split("\t")[-2:] for line in lines if line]
    return _describe_changes("words", rounded, [(word.label, word.confidence) for word in exact])


def compare_classes(pipeline: Any, texts: list[str], lines: list[str]) -> str:
    """Compare the labels of texts or pairs."""
    has_pairs = pipeline.num_texts == 2
    answers = pipeline.predict([tuple(text.split("\t")) for text in texts] if has_pairs else texts)
    exact = [(",".join(answer.labels), max(answer.probabilities.values())) for answer in answers]
    return _describe_changes("texts", [line.split("\t")[2 * has_pairs :][:2] for line in lines], exact)


def compare_answers(pipeline: Any, texts: list[str], lines: list[str]) -> str:
    """Compare the outputs of an encoder-decoder."""
    from ensue.tasks.sequence_to_sequence.writer import on_one_line  # noqa: PLC0415

    exact = pipeline.with_search(n_best=1).predict([tuple(text.split("\t")) for text in texts])
    share = np.mean([line == on_one_line(answer.text) for line, answer in zip(lines, exact, strict=True)])
    return (
        f"Of the answers to the first {len(exact):,} sources of the validation data, {100 * share:.2f} % are the same "
        "as with numbers of 32 bits."
    )


def compare_series(pipeline: Any, series: list[Any], lines: list[str]) -> str:
    """Compare the labels of series."""
    exact = [(" ".join(answer.labels) or "-", answer.probability) for answer in pipeline.predict(series)]
    return _describe_changes("series", [line.split("\t")[1:] for line in lines], exact)


def compare_frames(pipeline: Any, series: list[Any], lines: list[str]) -> str:
    """Compare the labels of frames."""
    answers = pipeline.predict(series, confidence=True)
    exact = [pair for answer in answers for pair in zip(answer.labels, answer.probabilities, strict=True)]
    rows = [[column.split(" ") for column in line.split("\t")[1:]] for line in lines]
    return _describe_changes("frames", [list(pair) for row in rows for pair in zip(*row, strict=True)], exact)


def _describe_changes(unit: str, rounded: list[list[str]], exact: list[tuple[str, float]]) -> str:
    """Describe the differences between two lists of pairs (label, probability)."""
    share = sum(pair[0] == other[0] for pair, other in zip(rounded, exact, strict=True)) / len(exact)
    changes = [abs(float(pair[1].partition(",")[0]) - other[1]) for pair, other in zip(rounded, exact, strict=True)]
    return (
        f"Of the first {len(exact):,} {unit} of the validation data, {100 * share:.2f} % have the same label as with "
        f"numbers of 32 bits; the probability of the label changes by {np.mean(changes):.4f} on average."
    )


def validation_sentences(run: RunDirectory, data_set: Any) -> list[str]:
    """Return the first sentences of the validation data, or []."""
    texts = _validation_data(run, data_set)
    return [] if texts is None else _first_texts(texts.texts)


def validation_documents(run: RunDirectory, data_set: Any) -> list[str]:
    """Return the first texts or pairs of the validation data, or []."""
    data = _validation_data(run, data_set)
    columns = [] if data is None else [_first_texts(texts) for texts in data.texts]
    return ["\t".join(row) for row in zip(*columns, strict=False)]


def validation_sources(run: RunDirectory, _: Any) -> list[str]:
    """Return the first sources of the validation data, or []."""
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
    return [line for line, end in zip(lines, accumulate(map(len, lines)), strict=True) if end <= MAX_SOURCE_CHARACTERS]


def validation_series(run: RunDirectory, data_set: Any) -> list[Any]:
    """Return the first series of the validation data, or []."""
    data = _validation_data(run, data_set)
    if data is None:
        return []
    return [data.rows[row] for row in range(np.searchsorted(data.rows.starts, MAX_WORDS, side="right") - 1)]


def _first_texts(texts: Any) -> list[str]:
    pairs = zip(texts, accumulate(map(len, texts)), strict=True)
    return [" ".join(" ".join(text).split()) for text, _ in takewhile(lambda pair: pair[1] <= MAX_WORDS, pairs)]


def _validation_data(run: RunDirectory, data_set: Any) -> Any:
    """Return the validation data, or None. A validation file is read as the training file of a changed recipe."""
    data: Any = run.recipe.data
    changes = {"train": data.valid, "valid": "", "valid_fraction": 0.0} if data.valid else {}
    recipe = run.recipe.model_copy(update={"data": data.model_copy(update={**changes, "test": ""})})
    try:
        split = data_set(recipe, run).split
        return split.train if changes else split.valid
    except EnsueError:
        return None


def validation_text(run: RunDirectory, _: Any) -> list[str]:
    """Return the beginning of the validation text, or []."""
    from ensue.data.sources import TextSource  # noqa: PLC0415
    from ensue.tasks.texts.corpus import training_characters, training_source  # noqa: PLC0415

    data: Any = run.recipe.data
    try:
        if data.valid:
            source, start = TextSource(data.valid, encoding=data.encoding), 0
        elif data.valid_fraction:
            source = training_source(data)
            start = training_characters(source.num_characters, data, run) or 0
        else:
            return []
        text = "".join(source.chunks(start, start + MAX_CHARACTERS))
        return [text] if text else []
    except DataError:
        return []


LANGUAGE = Validation(validation_text, [], compare_nats)
CLASSES = Validation(validation_documents, [], compare_classes)
TAGS = Validation(validation_sentences, ["--probabilities"], compare_tags)
ANSWERS = Validation(validation_sources, ["--n-best", "1"], compare_answers)
SERIES = Validation(validation_series, [], compare_series)
FRAMES = Validation(validation_series, ["--probabilities"], compare_frames)
