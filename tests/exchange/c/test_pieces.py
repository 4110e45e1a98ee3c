"""Each piece of C by itself, beside its twin in Python; and the step of every layer of the table of laws."""

import ctypes
import re
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from ensue.decode.next_token import drawn, filtered
from ensue.decode.sampling import Sampling
from ensue.engine.trace import Untraceable
from ensue.exchange.c.printing import Weights, printed_step, ranges
from ensue.exchange.c.writing import header, piece
from ensue.text.words import PUNCTUATION
from ensue.types import leaves
from exchange.c.carried import COMPILERS, CSampling, library
from laws.table import SUBJECTS

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not COMPILERS, reason="neither gcc nor clang is installed")]

HARNESS = """
void seeded(twister *of, uint64_t seed, double *to, int count) {
    twister_seed(of, seed);
    for (int k = 0; k < count; k++) to[k] = twister_share(of);
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
    head = header("language", {"VOCABULARY": 9})
    parts = [piece(part) for part in ("prelude.h", "engine/functions.h", "utf8.h", "sampling.h")]
    (folder / "pieces.c").write_text("\n".join([head, *parts, HARNESS]))
    found = library(folder, "-Wno-missing-prototypes", "pieces.c")
    found.drawn.restype = ctypes.c_uint32
    return found


def address(x: np.ndarray) -> ctypes.c_void_p:
    return ctypes.c_void_p(x.ctypes.data)


@pytest.mark.parametrize("seed", [0, 1, 2**32 - 1, 2**32 + 5, 2**63 - 1])
def test_random_numbers_are_those_of_torch(pieces: ctypes.CDLL, seed: int) -> None:
    found = np.empty(2000)
    pieces.seeded(ctypes.create_string_buffer(4 * 625), ctypes.c_uint64(seed), address(found), 2000)
    generator = torch.Generator().manual_seed(seed)
    torch_s = [1 - torch.rand(1, 1, generator=generator, dtype=torch.float64).item() for _ in range(2000)]
    assert found.tolist() == torch_s


@pytest.mark.parametrize("seed", range(40))
def test_filters_and_draws_are_those_of_ensue(pieces: ctypes.CDLL, seed: int) -> None:
    rng = np.random.default_rng(seed)
    count = int(rng.integers(1, 300))
    scores = (rng.normal(size=count) * 3).round(int(rng.integers(0, 7))).astype(np.float32)  # with ties
    k, p, least = (int(rng.integers(1, count + 2)), float(rng.uniform(0.05, 1)), float(rng.uniform(0, 0.3)))
    heat = float(rng.uniform(0.2, 2))
    ties_at_k = k < count and len({*np.sort(scores)[::-1][k - 1 : k + 1].tolist()}) == 1  # torch takes any of them
    sampling = Sampling(heat, None if ties_at_k else k, p, least)
    expected = filtered(torch.from_numpy(scores.copy())[None], sampling)
    how = CSampling(heat, 0 if ties_at_k else k, p, least, 0)
    found, order = scores.copy(), np.empty(count, np.uint32)
    pieces.filtered(address(found), count, ctypes.byref(how), address(order))
    np.testing.assert_allclose(found, expected[0].numpy(), rtol=1e-6)
    work = np.empty(count, np.float32)
    for share in 1 - rng.random(20):
        wanted = drawn(expected, torch.tensor([[share]], dtype=torch.float64)).item()
        assert pieces.drawn(address(found), count, ctypes.c_double(share), address(work)) == wanted


def test_every_code_point_is_written_and_read_as_by_python(pieces: ctypes.CDLL) -> None:
    points = [point for point in range(sys.maxunicode + 1) if not 0xD800 <= point < 0xE000]
    whole, to = "".join(map(chr, points)).encode(), np.empty(len(points) + 9, np.uint32)
    assert pieces.decoded(whole, len(whole), address(to)) == len(points)
    assert to[: len(points)].tolist() == points
    buffer = (ctypes.c_uint8 * 4)()
    assert b"".join(bytes(buffer[: pieces.written(point, buffer)]) for point in points) == whole


def test_the_ranges_are_those_of_every_code_point() -> None:
    for expression in (f"[{PUNCTUATION}]", r"\d"):
        numbers = [int(number) for number in ranges(expression).split(", ")]
        inside = {
            point for first, last in zip(numbers[::2], numbers[1::2], strict=True) for point in range(first, last + 1)
        }
        matches = re.compile(expression).fullmatch
        assert inside == {point for point in range(sys.maxunicode + 1) if matches(chr(point))}


def test_exponentials_are_close(pieces: ctypes.CDLL) -> None:
    x = np.linspace(-110, 95, 100_001, dtype=np.float32)
    found = np.empty_like(x)
    pieces.exponential(address(x), address(found), len(x))
    with np.errstate(over="ignore"):
        np.testing.assert_allclose(found, np.exp(x.astype(np.float64)).astype(np.float32), rtol=5e-7, atol=1e-37)


def test_the_step_of_every_layer(tmp_path: Path) -> None:
    """All that the engine traces, in one file: three positions each, outputs and states within 1e-5."""
    texts, cases = [], []
    for number, subject in enumerate(SUBJECTS):
        layer = subject.build().float()
        if not layer.is_causal or layer.d_memory is not None:
            continue
        weights = Weights()
        try:
            step = printed_step(layer, weights)
        except Untraceable:
            continue
        text = step.text.replace("position(", f"position_{number}(").replace("advance(", f"advance_{number}(")
        export = (
            f"void run_{number}(const uint32_t *weights, float *x, float *leaves, float *y, float *work) {{\n"
            f"    NAME_model model = {{weights, NULL}};\n    advance_{number}(&model, x, leaves, y, work);\n}}\n"
        )
        texts.append(text + export)
        cases.append((number, layer, step, weights.whole()))
    prelude = [piece("prelude.h"), piece("engine/functions.h"), piece("products.h")]
    model = piece("weights.h").partition("enum { LANES")[0]
    head = "#include <stdint.h>\ntypedef struct NAME_model NAME_model;\n"
    unused = "UNUSED static const uint32_t *(*const used)(const NAME_model *, size_t) = words32;\n"
    (tmp_path / "steps.c").write_text("\n".join([head, *prelude, model, unused, *texts]))
    built = library(tmp_path, "steps.c")
    for number, layer, step, numbers in cases:
        state, kept = layer.init_state(1), step.first.numpy().copy()
        y, work = np.empty(layer.d_out, np.float32), np.empty(step.work, np.float32)
        for position in range(3):
            x = torch.randn(1, layer.d_in, generator=torch.Generator().manual_seed(position))
            with torch.no_grad():
                expected, state = layer.step(x, state)
            given = x.numpy().copy()
            getattr(built, f"run_{number}")(*map(address, (numbers, given, kept, y, work)))
            np.testing.assert_allclose(y, expected[0].numpy(), rtol=1e-4, atol=1e-5, err_msg=SUBJECTS[number].name)
            after = np.concatenate([leaf.reshape(-1).numpy() for leaf in leaves(state)])
            np.testing.assert_allclose(kept, after, rtol=1e-4, atol=1e-5, err_msg=SUBJECTS[number].name)
    assert len(cases) > 20
