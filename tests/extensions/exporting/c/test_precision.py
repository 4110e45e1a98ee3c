"""Matrices of lower precision: C computes with the stored numbers, and scores hardly change."""

import ctypes
import re
from pathlib import Path
from platform import machine
from typing import Any

import numpy as np
import pytest
import torch

import ensue
from ensue.errors import EnsueError
from ensue.extensions.exporting.c import precision as precisions
from ensue.extensions.exporting.c.precision import PRECISIONS, encode_matrix
from ensue.extensions.exporting.c.printing import read_template
from ensue.extensions.exporting.c.writing import INTERFACES, header, print_c
from ensue.runs.directory import RunDirectory
from ensue.tasks import task_entry
from extensions.exporting.c.carried import COMPILERS, Carried, compiled, library, twin
from extensions.exporting.c.models import MIXED, pipeline
from extensions.exporting.c.printing import files_of
from kept_runs.make import unpacked
from language_pipelines import TEXT
from page_data import write_data

needs_compiler = pytest.mark.skipif(not COMPILERS, reason="neither gcc nor clang is installed")
HARNESS = """
void product(int64_t n, int64_t k, const float *a, const void *m, float *c) { multiply(1, n, k, a, k, m, c, n); }
void rows(int64_t n, int64_t k, const float *a, const void *m, float *c) { multiply(ROWS, n, k, a, k + 1, m, c, n); }
void row(const void *table, size_t rows, size_t width, size_t row, float *to) {
    read_row(table, rows, width, row, 3, to);
}
"""
ROWS = 19
PRODUCTS = [("f32", "rows.h"), ("f16", "rows.h"), ("int8", "rows_int8.h")]
FAILED = "Matrices and tables are f16. The effect was not measured: the program could not be compiled and run."


@pytest.mark.slow
@needs_compiler
@pytest.mark.parametrize("processor", ["-march=native", "-msse2", "-DNO_LANES"])
@pytest.mark.parametrize(("precision", "products"), PRODUCTS)
def test_a_product_and_a_row_are_of_the_numbers_that_are_left(
    precision: str, products: str, processor: str, tmp_path: Path
) -> None:
    """By instructions of the processor, by vectors of the compiler, and by single numbers."""
    if processor == "-msse2" and machine() not in ("x86_64", "AMD64"):
        processor = "-DPLAIN"
    head = f"#include <stdint.h>\n#include <stddef.h>\n#define PRECISION {PRECISIONS[precision]}\n#define ROWS {ROWS}"
    parts = [read_template(part) for part in ("prelude.h", "engine/functions.h", "stored.h", products)]
    (tmp_path / "products.c").write_text("\n".join([head, *parts, HARNESS]))
    pieces = library(tmp_path, "-Wno-missing-prototypes", processor, "products.c")
    rng = np.random.default_rng(0)
    for k, n in ((1, 1), (7, 3), (8, 16), (29, 50), (64, 5), (1101, 17)):
        matrix = (rng.normal(size=(k, n)) * 10.0 ** rng.integers(-7, 3, (k, n))).astype(np.float32)
        matrix[:, 0] = 0
        packed = encode_matrix(torch.from_numpy(matrix), precision, 0, in_panels=True)
        a, c = rng.normal(size=k).astype(np.float32), np.empty(n, np.float32)
        pointers = [x.ctypes.data_as(ctypes.c_void_p) for x in (a, c)]
        size = ctypes.c_int64
        pieces.product(size(n), size(k), pointers[0], packed, pointers[1])
        expected, most = a.astype(np.float64) @ twin(matrix, precision, 0), abs(a) @ abs(matrix)
        left = abs(twin(matrix, precision, 0)).sum(0) * abs(a).max() / 65_000 if precision == "int8" else 0
        assert (abs(c - expected) <= 1e-6 * most + 1e-12 + left).all()
        rounding = {
            "f32": 0,
            "f16": most / 2**11 + abs(a).sum() / 2**25,
            "int8": abs(a).sum() * abs(matrix).max(0) / 254,
        }
        several, results = rng.normal(size=(ROWS, k + 1)).astype(np.float32), np.empty((ROWS, n), np.float32)
        several[1, :k] = a
        pointers += [x.ctypes.data_as(ctypes.c_void_p) for x in (several, results)]
        pieces.rows(size(n), size(k), pointers[2], packed, pointers[3])
        assert results[1].tobytes() == c.tobytes()
        np.testing.assert_allclose(
            results, several[:, :k] @ twin(matrix, precision, 0), rtol=1e-4, atol=np.max(1e-4 * abs(c).max() + 2 * left)
        )
        assert (abs(a @ matrix - expected) <= 1.01 * rounding[precision] + 1e-6 * most).all()
        several[0, k // 2] = np.inf
        pieces.rows(size(n), size(k), pointers[2], packed, pointers[3])
        assert not np.isfinite(results[0]).any()
        assert np.isfinite(results[1:]).all()
        table = encode_matrix(torch.from_numpy(matrix), precision, 1)
        for row in range(k):
            pieces.row(table, ctypes.c_size_t(k), ctypes.c_size_t(n), ctypes.c_size_t(row), pointers[1])
            np.testing.assert_allclose(c, 3 * twin(matrix, precision, 1)[row], rtol=1e-6)


@pytest.mark.parametrize(("precision", "number"), [("f16", 7e4), ("int8", float("nan")), ("f16", float("inf"))])
def test_numbers_that_do_not_fit_are_refused(precision: str, number: float) -> None:
    with pytest.raises(ValueError, match=f"too large for {precision}"):
        encode_matrix(torch.tensor([[1.0, number]]), precision, 0)


@pytest.mark.parametrize("axis", [0, 1])
def test_int8_has_a_factor_for_each_line_of_a_matrix(axis: int) -> None:
    matrix = np.random.default_rng(0).normal(size=(5, 7)).astype(np.float32)
    content, count = encode_matrix(torch.from_numpy(matrix), "int8", axis), matrix.shape[1 - axis]
    factors, cells = np.frombuffer(content[: 4 * count], "<f4"), np.frombuffer(content[4 * count :], np.int8)
    np.testing.assert_allclose(factors, abs(matrix).max(axis) / 127, rtol=1e-6)
    factors = np.expand_dims(factors, axis)
    np.testing.assert_allclose(cells.reshape(5, 7) * factors, twin(matrix, "int8", axis), rtol=1e-6)


@pytest.mark.slow
@needs_compiler
@pytest.mark.parametrize("precision", ["f16", "int8"])
def test_lower_precisions_give_similar_scores_with_a_smaller_file(precision: str, tmp_path: Path) -> None:
    model = pipeline("simple")
    tokens = Carried(model, tmp_path, "sea", precision=precision).read(MIXED.encode())
    assert [token.id for token in tokens] == model.tokenizer.encode(MIXED).tolist()
    nats = np.array([score.nats for score in model.score(MIXED)])
    differences = abs(np.array([token.nats for token in tokens]) - nats)
    assert 0 < differences.max() < 0.1 * nats.mean()  # the weights of the model are large
    float32_weights = files_of(model, "sea")["sea.weights"]
    assert len((tmp_path / "sea.weights").read_bytes()) < 0.9 * len(float32_weights)


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    unpacked("char-lstm", tmp_path)
    (tmp_path / "book.txt").write_text(TEXT * 100, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path / "char-lstm"


@pytest.mark.slow
@needs_compiler
def test_the_change_of_the_scores_is_measured_and_reported(run: Path, tmp_path: Path) -> None:
    note, _ = ensue.export_run(run, tmp_path / "sea", "c", precision="int8", embed=True)
    match = re.fullmatch(
        r"Matrices and tables are int8\. The first ([\d,]+) characters of the validation text have ([\d.]+) nats "
        r"per token, and ([\d.]+) with numbers of 32 bits \(([-+][\d.]+)%\)\.",
        note,
    )
    assert match is not None
    assert note in (tmp_path / "sea" / "README.md").read_text(encoding="utf-8")
    count, fewer, before, change = (float(number.replace(",", "")) for number in match.groups())
    held_out = (TEXT * 100)[int(len(TEXT) * 90) :]
    assert count == len(held_out)
    assert change == pytest.approx(100 * (fewer / before - 1), abs=0.02)
    assert abs(change) < 0.5
    assert before == pytest.approx(np.mean([score.nats for score in ensue.load(run).score(held_out)]), abs=1e-4)


def test_a_missing_measurement_is_explained(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def note(out: str) -> str:
        return ensue.export_run(run, tmp_path / out, "c", precision="f16")[0]

    with monkeypatch.context() as patch:
        patch.setattr(precisions, "compiler", lambda: None)
        assert note("a") == "Matrices and tables are f16. The effect was not measured: there is no C compiler."
        patch.setattr(precisions, "compiler", lambda: ("false",))
        assert note("b") == FAILED
        patch.setattr(precisions, "compiler", lambda: ("no-such-compiler",))
        assert note("c") == FAILED
    Path("book.txt").unlink()
    assert note("d") == "Matrices and tables are f16. The effect was not measured: there is no validation text."


def disturb(model: torch.nn.Module) -> None:
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1)))


@pytest.mark.slow
@needs_compiler
@pytest.mark.parametrize("valid", ["", "some.tsv"])
def test_changed_answers_are_measured(valid: str, tmp_path: Path, in_tmp_path: None) -> None:
    """C answers for the validation data with another model; Python has the answers of both."""
    unpacked("transduce-lstm", tmp_path)
    write_data(tmp_path)
    (tmp_path / "some.tsv").write_text("go\twent\tV;PST\nsee\tsaw\tV;PST\n")
    run = RunDirectory(tmp_path / "transduce-lstm")
    data = run.recipe.data
    run.recipe = run.recipe.model_copy(update={"data": data.model_copy(update={"valid": valid})})
    other: Any = ensue.load(run.path, device="cpu")
    interface = INTERFACES[other.describe().kinds]
    files, *_ = print_c(run, other.describe(), "other")
    pipeline: Any = ensue.load(tmp_path / "transduce-lstm")
    disturb(pipeline.model)
    note = precisions.measure_precision(run, pipeline, interface.validation, files, "other", "int8")
    pairs = task_entry(run.recipe.task).job_class(run.recipe, run).valid_pairs
    both = [model.predict([pair.sources for pair in pairs]) for model in (pipeline, other)]
    same = np.mean([one.text == two.text for one, two in zip(*both, strict=True)])
    assert same < 1
    assert note == (
        f"Matrices and tables are int8. Of the answers to the first {len(pairs)} sources of the validation data, "
        f"{100 * same:.2f} % are the same as with numbers of 32 bits."
    )


def answers(answer: Any) -> list[tuple[str, float]]:
    """Return the labels of a text, of its words, or of frames, with their probabilities."""
    if hasattr(answer, "series"):
        return list(zip(answer.labels, answer.probabilities, strict=True))
    if hasattr(answer, "label"):
        return [(answer.label, answer.probability)]
    return [(word.label, word.confidence) for word in answer]


@pytest.mark.slow
@needs_compiler
@pytest.mark.parametrize(
    ("name", "unit"),
    [("tag-lstm", "words"), ("classify-pairs", "texts"), ("classify-frames", "series"), ("tag-frames", "frames")],
)
def test_changed_labels_and_probabilities_are_measured(name: str, unit: str, tmp_path: Path, in_tmp_path: None) -> None:
    """C answers for the validation data with another model; Python has the answers of both."""
    unpacked(name, tmp_path)
    write_data(tmp_path)
    run = RunDirectory(tmp_path / name)
    other: Any = ensue.load(run.path, device="cpu")
    interface = INTERFACES[other.describe().kinds]
    files, *_ = print_c(run, other.describe(), "other")
    pipeline: Any = ensue.load(tmp_path / name)
    disturb(pipeline.model)
    note = precisions.measure_precision(run, pipeline, interface.validation, files, "other", "int8")
    match = re.fullmatch(
        rf"Matrices and tables are int8\. Of the first ([\d,]+) {unit} of the validation data, ([\d.]+) % have the "
        r"same label as with numbers of 32 bits; the probability of the label changes by ([\d.]+) on average\.",
        note,
    )
    assert match is not None
    job = task_entry(run.recipe.task).job_class(run.recipe, run)
    valid, options = job.split.valid, {"confidence": True} if unit in ("words", "frames") else {}
    if unit in ("series", "frames"):
        inputs: list[Any] = [valid.rows[row] for row in range(len(valid))]
    elif unit == "words":
        inputs = [" ".join(text) for text in valid.texts]
    else:
        inputs = [tuple(" ".join(text) for text in pair) for pair in zip(*valid.texts, strict=True)]
    both = [[pair for one in model.predict(inputs, **options) for pair in answers(one)] for model in (pipeline, other)]
    count, share, change = (float(number.replace(",", "")) for number in match.groups())
    pairs = list(zip(*both, strict=True))
    assert count == len(pairs) > 1
    assert share == pytest.approx(100 * np.mean([one[0] == two[0] for one, two in pairs]), abs=0.01)
    assert share < 100 or unit == "series"  # which are two
    assert change == pytest.approx(np.mean([abs(one[1] - two[1]) for one, two in pairs]), abs=1e-4)


@pytest.mark.parametrize(
    ("format", "options", "message"),
    [
        ("onnx", {"precision": "f16"}, "precision is for the formats c and web"),
        ("c", {"precision": "f8"}, 'no precision "f8"; expected one of f32, f16, int8'),
    ],
)
def test_unknown_and_unsupported_precisions_are_refused(format: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(EnsueError, match=re.escape(message)):
        ensue.export_run("run", "out", format, **options)


@needs_compiler
def test_functions_of_the_engine_need_no_vectors(tmp_path: Path) -> None:
    """Models without the products of the engine have these functions, too."""
    head = header("language", {"VOCABULARY": 9, "CONTEXT": 0})
    (tmp_path / "alone.c").write_text(
        "\n".join([head, read_template("prelude.h"), read_template("engine/functions.h")])
    )
    compiled(tmp_path, "-fsyntax-only", "-Wno-unused-function", "alone.c")
