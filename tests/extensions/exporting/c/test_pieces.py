"""Each part of the C computes the same as its counterpart in Python, and so does the step of every layer."""

import ctypes
import itertools
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from ensue.decode.generation import draw_with, filter_logits
from ensue.decode.sampling import Sampling
from ensue.engine.trace import Untraceable
from ensue.extensions.exporting.c.precision import to_panels
from ensue.extensions.exporting.c.printing import Weights, math_functions, print_step, ranges, read_template
from ensue.extensions.exporting.c.tagging import label_names, label_tables
from ensue.extensions.exporting.c.writing import header
from ensue.models.build_text import build_tag_head
from ensue.models.word_specification import PathHeadSpecification
from ensue.nn import MultiHeadAttention
from ensue.text.labels import Labels
from ensue.text.schemes import SCHEMES, tag_set
from ensue.text.tokenizer import PUNCTUATION
from ensue.types import leaves
from extensions.exporting.c.carried import COMPILERS, CSampling, library
from inspection.small import SPANS
from laws.table import SUBJECTS

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not COMPILERS, reason="neither gcc nor clang is installed")]

HARNESS = """
void seeded(twister *of, uint64_t seed, double *to, int count) {
    twister_seed(of, seed);
    for (int k = 0; k < count; k++) to[k] = draw_uniform(of);
}
void filtered(float *x, uint32_t count, const NAME_sampling *how, uint32_t *order) { filter(x, count, how, order); }
uint32_t drawn(const float *x, uint32_t count, double share, float *work) { return draw(x, count, share, work); }
void exponential(const float *x, float *to, int n) { for (int k = 0; k < n; k++) to[k] = exp_(x[k]); }
int written(uint32_t point, uint8_t *to) { return utf8_write(point, to); }
int decoded(const uint8_t *bytes, int count, uint32_t *to) {
    utf8 in = {0};
    uint32_t found[2];
    int lengths[2], size = 0;
    for (int k = 0; k < count; k++)
        for (int c = 0, n = utf8_feed(&in, bytes[k], found, lengths); c < n; c++) to[size++] = found[c];
    if (utf8_end(&in)) to[size++] = REPLACEMENT;
    return size;
}
"""


@pytest.fixture(scope="module")
def pieces(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    folder = tmp_path_factory.mktemp("pieces")
    head = header("language", {"VOCABULARY": 9, "CONTEXT": 0})
    parts = [read_template("prelude.h"), math_functions(), read_template("utf8.h"), read_template("sampling.h")]
    (folder / "pieces.c").write_text("\n".join([head, *parts, HARNESS]))
    compiled = library(folder, "-Wno-missing-prototypes", "pieces.c")
    compiled.drawn.restype = ctypes.c_uint32
    return compiled


def address(x: np.ndarray) -> ctypes.c_void_p:
    return ctypes.c_void_p(x.ctypes.data)


@pytest.mark.parametrize("seed", [0, 1, 2**32 - 1, 2**32 + 5, 2**63 - 1])
def test_random_numbers_are_those_of_torch(pieces: ctypes.CDLL, seed: int) -> None:
    numbers = np.empty(2000)
    pieces.seeded(ctypes.create_string_buffer(4 * 625), ctypes.c_uint64(seed), address(numbers), 2000)
    generator = torch.Generator().manual_seed(seed)
    torch_s = [1 - torch.rand(1, 1, generator=generator, dtype=torch.float64).item() for _ in range(2000)]
    assert numbers.tolist() == torch_s


@pytest.mark.parametrize("seed", range(40))
def test_filters_and_draws_are_those_of_ensue(pieces: ctypes.CDLL, seed: int) -> None:
    rng = np.random.default_rng(seed)
    count = int(rng.integers(1, 300))
    scores = (rng.normal(size=count) * 3).round(int(rng.integers(0, 7))).astype(np.float32)  # with ties
    k, p, least = (int(rng.integers(1, count + 2)), float(rng.uniform(0.05, 1)), float(rng.uniform(0, 0.3)))
    heat = float(rng.uniform(0.2, 2))
    ties_at_k = k < count and len({*np.sort(scores)[::-1][k - 1 : k + 1].tolist()}) == 1  # torch takes any of them
    sampling = Sampling(heat, None if ties_at_k else k, p, least)
    expected = filter_logits(torch.from_numpy(scores.copy())[None], sampling)
    how = CSampling(heat, 0 if ties_at_k else k, p, least, 0)
    filtered, order = scores.copy(), np.empty(count, np.uint32)
    pieces.filtered(address(filtered), count, ctypes.byref(how), address(order))
    np.testing.assert_allclose(filtered, expected[0].numpy(), rtol=1e-6)
    work = np.empty(count, np.float32)
    for share in 1 - rng.random(20):
        wanted = draw_with(expected, torch.tensor([[share]], dtype=torch.float64)).item()
        assert pieces.drawn(address(filtered), count, ctypes.c_double(share), address(work)) == wanted


def test_every_code_point_is_written_and_read_as_by_python(pieces: ctypes.CDLL) -> None:
    points = [point for point in range(sys.maxunicode + 1) if not 0xD800 <= point < 0xE000]
    encoded, to = "".join(map(chr, points)).encode(), np.empty(len(points) + 9, np.uint32)
    assert pieces.decoded(encoded, len(encoded), address(to)) == len(points)
    assert to[: len(points)].tolist() == points
    buffer = (ctypes.c_uint8 * 4)()
    assert b"".join(bytes(buffer[: pieces.written(point, buffer)]) for point in points) == encoded


def test_the_ranges_are_those_of_every_code_point() -> None:
    for expression in (f"[{PUNCTUATION}]", r"\d"):
        numbers = [int(number) for number in ranges(expression).split(", ")]
        inside = {
            point for first, last in zip(numbers[::2], numbers[1::2], strict=True) for point in range(first, last + 1)
        }
        matches = re.compile(expression).fullmatch
        assert inside == {point for point in range(sys.maxunicode + 1) if matches(chr(point))}


def test_exponentials_are_close_to_those_of_numpy(pieces: ctypes.CDLL) -> None:
    x = np.linspace(-110, 95, 100_001, dtype=np.float32)
    exponentials = np.empty_like(x)
    pieces.exponential(address(x), address(exponentials), len(x))
    with np.errstate(over="ignore"):
        np.testing.assert_allclose(exponentials, np.exp(x.astype(np.float64)).astype(np.float32), rtol=5e-7, atol=1e-37)


ROWS = 3


@pytest.mark.parametrize("rows", [1, ROWS])
def test_the_step_of_every_layer_is_that_of_ensue(tmp_path: Path, rows: int) -> None:
    """One file has the steps of all layers; outputs and states of three positions differ by 1e-5 at most."""
    texts, cases = [], []
    for number, subject in enumerate(SUBJECTS):
        layer = subject.build().float()
        if not layer.is_causal or layer.d_memory is not None:
            continue
        weights = Weights()
        try:
            step = print_step(layer, weights, rows=rows, number=str(number))
        except Untraceable:
            continue
        export = (
            f"void run_{number}(const uint32_t *weights, float *x, float *h, float *leaves, float *y, float *work) {{\n"
            f"    NAME_model model = {{weights, NULL}};\n    hoist{number}(&model, {rows}, x, {layer.d_in}, h);\n"
            f"    advance{number}(&model, {rows}, x, h, leaves, y, work);\n}}\n"
        )
        texts.append(step.text + export)
        cases.append((number, layer, step, weights.padded_content()))
    prelude = [read_template("prelude.h"), math_functions(), read_template("stored.h"), read_template("rows.h")]
    model = read_template("weights.h").partition("enum { LANES")[0]
    head = "#include <stdint.h>\ntypedef struct NAME_model NAME_model;\n"
    unused = "UNUSED static const uint32_t *(*const used)(const NAME_model *, size_t) = words32;\n"
    (tmp_path / "steps.c").write_text("\n".join([head, *prelude, model, unused, *texts]))
    built = library(tmp_path, "steps.c")
    for number, layer, step, numbers in cases:
        state, c_state = layer.init_state(rows), step.initial.numpy().copy()
        y, work = np.empty((rows, layer.d_out), np.float32), np.empty(step.work * rows, np.float32)
        hoisted = np.empty(step.hoisted * rows, np.float32)
        for position in range(3):
            x = torch.randn(rows, layer.d_in, generator=torch.Generator().manual_seed(position))
            with torch.no_grad():
                expected, state = layer.step(x, state)
            getattr(built, f"run_{number}")(*map(address, (numbers, x.numpy().copy(), hoisted, c_state, y, work)))
            np.testing.assert_allclose(y, expected.numpy(), rtol=1e-4, atol=1e-5, err_msg=SUBJECTS[number].name)
            after = np.concatenate([leaf.reshape(-1).numpy() for leaf in leaves(state)])
            np.testing.assert_allclose(c_state, after, rtol=1e-4, atol=1e-5, err_msg=SUBJECTS[number].name)
    assert len(cases) > 20


PATHS = """
UNUSED static const real *(*const reads)(const NAME_model *, size_t) = reals;
void paths(float *scores, int words, float *best, uint32_t *path, double *shares, double *work, const uint32_t *w) {
    NAME_model model = {w, NULL};
    best_path(&model, scores, words, best, path);
    compute_marginals(&model, scores, words, shares, work);
}
"""


def model_in_c() -> list[str]:
    """Compile the functions that read weights without a file of weights."""
    head = "#include <stdint.h>\ntypedef struct NAME_model NAME_model;\n"
    unused = "UNUSED static const uint32_t *(*const used)(const NAME_model *, size_t) = words32;\n"
    return [
        head, read_template("prelude.h"), math_functions(), read_template("weights.h").partition("enum { LANES")[0],
        unused,
    ]  # fmt: skip


@pytest.mark.parametrize("kind", ["softmax", "viterbi", "crf"])
def test_paths_and_probabilities_of_tags_are_those_of_ensue(kind: Any, tmp_path: Path) -> None:
    tags = len(SPANS.tags)
    head = build_tag_head(PathHeadSpecification(kind=kind, legal=True), 3, SPANS)
    rng, weights = np.random.default_rng(0), Weights()
    for parameter in head.parameters():
        parameter.data += torch.from_numpy(rng.normal(size=parameter.shape) * 3).float()
    tables = head.tables()
    places = [weights.add(part) for part in tables or ()] or [0, 0, 0]
    constants = {"TAGS": tags, "HAS_CHAIN": int(tables is not None), "LOG_SOFTMAX": int(kind == "viterbi")}
    constants |= dict(zip(("AT_START", "AT_PAIRS", "AT_END"), places, strict=True))
    defined = "".join(f"#define {key} {value}\n" for key, value in constants.items())
    (tmp_path / "paths.c").write_text("\n".join([*model_in_c(), defined, read_template("paths.h"), PATHS]))
    built = library(tmp_path, "paths.c")
    weights.add(b"")
    for length, scale in itertools.product((1, 2, 9, 60), (1.0, 30.0, 3000.0)):
        scores = (rng.normal(size=(length, tags)) * scale).astype(np.float32)
        expected = head.decode_sentence(scores, with_posterior=True)
        path, shares = np.empty(length, np.uint32), np.empty((length, tags))
        work = np.empty((3 + tags) * tags)
        best, emissions = np.empty((length, tags), np.float32), scores.copy()
        arrays: list[Any] = [best, path, shares, work, weights.padded_content()]
        built.paths(address(emissions), length, *map(address, arrays))
        assert path.tolist() == expected.tags.tolist()
        assert expected.posterior is not None
        np.testing.assert_allclose(shares, expected.posterior.marginals, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("scheme", [*SCHEMES, None])
def test_labels_of_tags_are_those_of_ensue(scheme: Any, tmp_path: Path) -> None:
    classes = ("A", "B") if scheme else ()
    names = tag_set(classes, scheme) if scheme else ["X", "Y", "Z"]
    labels = Labels(names, scheme=scheme, tag_scheme=scheme and "iobes")
    written, weights = label_names(labels), Weights(constants={"TAGS": len(labels)})
    tables = label_tables(labels, written, weights)
    defined = "".join(f"#define {key} {value}\n" for key, value in weights.constants.items())
    wrapped = "void labeled(const uint32_t *path, int words, uint32_t *to) { decode_labels(path, words, to); }\n"
    wrapped += "double share(uint32_t label, const double *shares) { return sum_label_probability(label, shares); }\n"
    parts = [read_template("prelude.h"), defined, tables, read_template("labels.h"), wrapped]
    (tmp_path / "labels.c").write_text("\n".join(["#include <stdint.h>", *parts]))
    built, rng = library(tmp_path, "labels.c"), np.random.default_rng(1)
    built.share.restype = ctypes.c_double
    for length in [1, 2, 3] * 30 + [40] * 10:
        path, ids = rng.integers(0, len(labels), length).astype(np.uint32), np.empty(length, np.uint32)
        built.labeled(address(path), length, address(ids))
        expected = labels.decode(path.tolist())
        assert [written[id] for id in ids] == expected
        shares = rng.dirichlet(np.ones(len(labels)), length)
        ours = [built.share(ctypes.c_uint32(id), address(row)) for id, row in zip(ids.tolist(), shares, strict=True)]
        assert ours == pytest.approx(labels.confidence(expected, shares))


@pytest.mark.parametrize("rows", [1, 2, 3, 4, 7, 17])
def test_products_do_not_depend_on_the_number_of_rows(rows: int, products: ctypes.CDLL) -> None:
    rng = np.random.default_rng(rows)
    for n, k in itertools.product((1, 5, 16, 33, 64, 200), (1, 7, 150)):
        a, m = rng.normal(size=(rows, k + 3)).astype(np.float32), rng.normal(size=(k, n)).astype(np.float32)
        c, packed = np.zeros((rows, n + 2), np.float32), to_panels(m, 1).tobytes()
        sizes = map(ctypes.c_int64, (rows, n, k))
        products.product(*sizes, address(a), ctypes.c_int64(k + 3), packed, address(c), ctypes.c_int64(n + 2))
        np.testing.assert_allclose(c[:, :n], a[:, :k] @ m, rtol=1e-5, atol=1e-5)
        assert not c[:, n:].any()
        alone = np.zeros_like(c)
        for row in range(rows):
            sizes = map(ctypes.c_int64, (1, n, k))
            arguments = address(a[row]), ctypes.c_int64(k + 3), packed, address(alone[row]), ctypes.c_int64(n + 2)
            products.product(*sizes, *arguments)
        assert alone.tobytes() == c.tobytes()


@pytest.fixture(scope="module")
def products(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    folder = tmp_path_factory.mktemp("rows")
    wrapped = """
    void product(int64_t rows, int64_t n, int64_t k, const real *a, int64_t stride, const real *m, real *c,
                 int64_t ldc) {
        multiply(rows, n, k, a, stride, m, c, ldc);
    }
    """
    parts = [read_template("prelude.h"), math_functions(), read_template("stored.h"), read_template("rows.h")]
    (folder / "rows.c").write_text("\n".join(["#include <stdint.h>", *parts, wrapped]))
    return library(folder, "-march=native", "rows.c")


ATTENTION = """
UNUSED static uint32_t (*const drawing)(const real *, uint32_t, double, real *) = draw;
UNUSED static void (*const seeds)(twister *, uint64_t) = twister_seed;
UNUSED static double (*const drawn)(twister *) = draw_uniform;
UNUSED static void (*const filters)(real *, uint32_t, const NAME_sampling *, uint32_t *) = filter;
size_t size(void) { return sizeof(attended); }
void attends(attended *of, int64_t position, const real *turns, real *x, real *heads) {
    real shares[CONTEXT];
    attend(of, position, turns, x, shares, heads);
}
"""


@pytest.mark.parametrize("is_rotary", [False, True])
def test_attention_to_the_positions_before(is_rotary: bool, tmp_path: Path) -> None:
    heads, d_head, context = 3, 6, 21
    layer = MultiHeadAttention(heads * d_head, num_heads=heads, rotary=is_rotary).eval()
    constants = {"HEADS": heads, "D_HEAD": d_head, "CONTEXT": context, "SCORE_SCALE": d_head**-0.5}
    defined = "".join(f"#define {key} {value}\n" for key, value in constants.items())
    head = header("language", {"VOCABULARY": 9, "CONTEXT": context})
    pieces = [
        read_template("prelude.h"),
        math_functions(),
        *map(read_template, ("sampling.h", "mixing.h", "attention.h")),
    ]
    (tmp_path / "attention.c").write_text("\n".join([head, defined, *pieces, ATTENTION]))
    built = library(tmp_path, "attention.c")
    x = 3 * torch.randn(1, context, heads * d_head, generator=torch.Generator().manual_seed(0))
    of, turns = np.zeros(built.size(), np.uint8), np.zeros((context, d_head), np.float32)
    if layer.rotary is not None:
        angles = layer.rotary.frequencies.angles(torch.arange(context))
        turns[:] = torch.stack((angles.cos(), angles.sin()), -1).flatten(1)
    with torch.no_grad():
        expected, projected = layer(x)[0][0], layer.project_in(x)[0]
        for position in range(context):
            attended, row = np.empty(heads * d_head, np.float32), projected[position].numpy().copy()
            turned = address(turns[position]) if is_rotary else None
            built.attends(address(of), ctypes.c_int64(position), turned, address(row), address(attended))
            y = layer.project_out(torch.from_numpy(attended))
            torch.testing.assert_close(y, expected[position], rtol=1e-5, atol=1e-5)
