"""The kernels in the C headers of the engine agree with numpy in float64 and longdouble, up to rounding."""

import ctypes
import hashlib
import math
import os
import platform
import shutil
import subprocess
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

import ensue
from conftest import QUICKLY_COMPILED, is_thorough
from ensue.engine import bf16_kernels
from ensue.processor import features
from training.tiny import some_slow

HEADERS = Path(ensue.__file__).parent / "engine"
COMPILER = next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))), None)
pytestmark = pytest.mark.skipif(COMPILER is None, reason="no C compiler (cc, gcc, clang)")

SOURCE = f"""
#if EMULATES_AMX
#include "{Path(__file__).parent}/emulated_amx.h"
#endif
#include "{HEADERS}/kernels.h"
#include "{HEADERS}/functions.h"
#include "{HEADERS}/amx.h"
int64_t block(void) {{ return BLOCK; }}
int in_bf16(void) {{ return IN_BF16; }}
int64_t size_of_packed(int64_t k, int64_t n) {{ return packed_size(k, n); }}
void packed_gemm(int64_t m, int64_t n, int64_t k, const real *A, int64_t row_a, int64_t column_a, const real *B,
                 int64_t row_b, int64_t column_b, real *C, int64_t ldc, int accumulate, real *packed) {{
    pack(k, n, B, row_b, column_b, packed);
    gemm(m, n, k, A, row_a, column_a, packed, C, ldc, accumulate);
}}
void single_gemm(int64_t m, int64_t n, int64_t k, const real *A, int64_t row_a, int64_t column_a, const real *B,
                 int64_t row_b, int64_t column_b, real *C, int64_t ldc, int accumulate, real *workspace) {{
    gemm_once(m, n, k, A, row_a, column_a, B, row_b, column_b, C, ldc, accumulate, workspace);
}}
#define MAP(f) void map_##f(int64_t n, const real *x, real *y) {{ for (int64_t i = 0; i < n; i++) y[i] = f##_(x[i]); }}
MAP(exp) MAP(sigmoid) MAP(tanh) MAP(log) MAP(erf)
"""
FLAGS = [
    "-O3", "-march=native", "-std=gnu11", "-ffp-contract=fast", "-fno-math-errno", "-fno-trapping-math", "-shared",
    "-fPIC",
]  # fmt: skip
TARGET = [option for option in os.environ.get("ENSUE_CFLAGS", "").split() if option.startswith("-march=")]
"""The target processor that `test_processors.py` sets."""
FLOATS = {"float": np.float32, "double": np.float64}
BF16 = {
    "bf16": ["-DPRODUCTS_IN_BF16=1"],
    "emulated amx": ["-DPRODUCTS_IN_BF16=1", "-DPRODUCTS_IN_AMX=1", "-DEMULATES_AMX=1"],
    "amx": ["-DPRODUCTS_IN_BF16=1", "-DPRODUCTS_IN_AMX=1"],
}
PRODUCTS = [*FLOATS, *BF16]
"""Kinds of products; functions of one number do not depend on bfloat16."""


def pointer(array: np.ndarray) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)


class Kernels(NamedTuple):
    """A compiled library and its type; with `in_bf16` factors of products are rounded."""

    library: ctypes.CDLL
    dtype: type
    in_bf16: bool

    @property
    def unit(self) -> float:
        return float(np.finfo(self.dtype).eps)

    def workspace(self, k: int, n: int) -> np.ndarray:
        """Return a workspace of NaN, so that reading unpacked numbers is noticed."""
        self.library.size_of_packed.restype = ctypes.c_int64
        size = self.library.size_of_packed(ctypes.c_int64(k), ctypes.c_int64(n))
        return np.full(size, np.nan, self.dtype)

    def product(
        self, name: str, A: np.ndarray, B: np.ndarray, C: np.ndarray, *, accumulate: bool, workspace: np.ndarray
    ) -> None:
        """Set C (m, n) with contiguous rows to A (m, k) @ B (k, n), or add the product."""
        strides = [[ctypes.c_int64(step // X.itemsize) for step in X.strides] for X in (A, B, C)]
        sizes = [ctypes.c_int64(size) for size in (A.shape[0], B.shape[1], A.shape[1])]
        a, b, (ldc, _) = strides
        function = getattr(self.library, name)
        function(*sizes, pointer(A), *a, pointer(B), *b, pointer(C), ldc, accumulate, pointer(workspace))

    def map(self, name: str, x: np.ndarray) -> np.ndarray:
        y = np.empty_like(x)
        getattr(self.library, f"map_{name}")(ctypes.c_int64(x.size), pointer(x), pointer(y))
        return y


Build = Callable[[str], Kernels]
Compile = Callable[..., Path]


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory, kept_folder: Callable[[str], Path]) -> Compile:
    """Return a function that compiles the library of a kind of `PRODUCTS`, unless an earlier run has cached it."""
    source, cached_libraries = tmp_path_factory.mktemp("kernels") / "kernels.c", kept_folder("kernels")
    source.write_text(SOURCE)
    headers = [path.read_text() for folder in (HEADERS, Path(__file__).parent) for path in sorted(folder.glob("*.h"))]

    def library_of(kind: str, *options: str) -> Path:
        assert COMPILER is not None
        kinds = [f"-DREAL_IS_DOUBLE={int(kind == 'double')}", *BF16.get(kind, [])]
        command = [COMPILER, *FLAGS, *options, "-Wall", "-Wextra", "-Werror", *kinds]
        key = "\0".join([SOURCE, *headers, *command, *sorted(features())])
        library = cached_libraries / f"{hashlib.sha256(key.encode()).hexdigest()}.so"
        if not library.exists():
            output = source.with_name(f"{kind}.so")
            command += [str(source), "-o", str(output), "-lm"]
            result = subprocess.run(command, capture_output=True, text=True, check=False)
            assert result.returncode == 0, result.stderr
            shutil.copy(output, temporary := library.with_suffix(f".{os.getpid()}"))
            temporary.replace(library)
        return library

    return library_of


@pytest.fixture(scope="module")
def build(compiled: Compile, pytestconfig: pytest.Config) -> Build:
    """Return a function that compiles and loads kernels: quickly by default, with users' options in slow tests."""

    @cache
    def kernels(kind: str) -> Kernels:
        quickly = [] if is_thorough(pytestconfig) else QUICKLY_COMPILED
        loaded = ctypes.CDLL(str(compiled(kind, *quickly, *TARGET)))
        return Kernels(loaded, FLOATS.get(kind, np.float32), bool(loaded.in_bf16()))

    return kernels


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the compiler is for another kind of processor")
@pytest.mark.parametrize("kind", some_slow(PRODUCTS, "emulated amx"))
@pytest.mark.parametrize(
    "target", some_slow(["x86-64", "x86-64-v2", "x86-64-v3", "x86-64-v4", "cooperlake"], "x86-64-v3")
)
def test_the_headers_compile_for_each_target(target: str, kind: str, compiled: Compile) -> None:
    """There are no warnings. This processor need not support the target."""
    assert compiled(kind, *QUICKLY_COMPILED, f"-march={target}").exists()


@pytest.fixture(scope="module", params=FLOATS)
def kernels(request: pytest.FixtureRequest, build: Build) -> Kernels:
    return build(request.param)


@pytest.fixture(scope="module", params=BF16)
def bf16(request: pytest.FixtureRequest, build: Build) -> Kernels:
    return in_bf16(build, request.param)


def in_bf16(build: Build, kind: str) -> Kernels:
    if kind == "amx" and "amx" not in bf16_kernels():
        pytest.skip("this processor, or the system, has no AMX for products in bfloat16")
    built = build(kind)
    if not built.in_bf16:
        pytest.skip("the compiler and this processor have no AVX512_BF16: products are compiled as for float")
    return built


@pytest.fixture(scope="module", params=some_slow(PRODUCTS, "float", "bf16", "emulated amx"))
def multiplier(request: pytest.FixtureRequest, build: Build) -> Kernels:
    return build(request.param) if request.param in FLOATS else in_bf16(build, request.param)


def rounded_to_bf16(x: np.ndarray) -> np.ndarray:
    """Round float32 numbers to 8 significant bits, ties to even."""
    fraction, exponent = np.frexp(x)
    return np.ldexp(np.rint(fraction * 256), exponent - 8).astype(np.float32)


def random_matrix(random: np.random.Generator, rows: int, columns: int, kernels: Kernels, layout: str) -> np.ndarray:
    """Return a random matrix in a memory layout; its numbers are exact in bfloat16 if factors are rounded to it."""
    shape = {"rows": (rows, columns), "columns": (columns, rows), "neither": (rows, 3, columns, 2)}[layout]
    numbers = random.standard_normal(shape).astype(kernels.dtype)
    if kernels.in_bf16:
        numbers = rounded_to_bf16(numbers)
    if layout == "rows":
        return numbers
    return numbers.T if layout == "columns" else numbers[:, 1, :, 1]


def check_product(kernels: Kernels, name: str, A: np.ndarray, B: np.ndarray, *, accumulate: bool) -> None:
    """Compare a product with float64, and assert that numbers beside C do not change."""
    (m, k), n = A.shape, B.shape[1]
    before = np.random.default_rng(1).standard_normal((m, n + 3)).astype(kernels.dtype)
    C = before.copy()
    kernels.product(name, A, B, C[:, :n], accumulate=accumulate, workspace=kernels.workspace(k, n))
    exact, size = A.astype(np.float64) @ B, np.abs(A).astype(np.float64) @ np.abs(B)
    if accumulate:
        exact, size = exact + before[:, :n], size + np.abs(before[:, :n])
    # Sums are added in chunks, so that the error is far below k units of the sum of magnitudes.
    np.testing.assert_array_less(np.abs(C[:, :n] - exact), 8 * kernels.unit * size + 1e-300)
    np.testing.assert_array_equal(C[:, n:], before[:, n:])


@pytest.mark.slow
@pytest.mark.parametrize("accumulate", [False, True])
@pytest.mark.parametrize("layout", some_slow(["rows", "columns", "neither"], "neither"))
def test_products_of_any_number_of_rows_agree_with_float64(multiplier: Kernels, layout: str, accumulate: bool) -> None:
    random = np.random.default_rng(0)
    for m in (*range(1, 27), 250):
        A = random_matrix(random, m, 37, multiplier, layout)
        B = random_matrix(random, 37, 41, multiplier, "rows")
        check_product(multiplier, "packed_gemm", A, B, accumulate=accumulate)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("layout", ["rows", "columns", "neither"])
@pytest.mark.parametrize("k", [1, 2, 127, 129, 513, 1101])
def test_products_of_any_layout_of_the_weight_agree_with_float64(multiplier: Kernels, layout: str, k: int) -> None:
    random = np.random.default_rng(0)
    for n in (1, 7, 8, 31, 32, 33, 64, 300):
        A, B = random_matrix(random, 5, k, multiplier, "rows"), random_matrix(random, k, n, multiplier, layout)
        check_product(multiplier, "packed_gemm", A, B, accumulate=True)


@pytest.mark.parametrize("accumulate", [False, True])
@pytest.mark.parametrize("k", [1, 511, 513, 1500])
def test_products_with_an_unpacked_weight_agree_with_float64(multiplier: Kernels, k: int, accumulate: bool) -> None:
    """The product is dW = dZᵀ X of a backward pass; the workspace has only one block of rows."""
    random = np.random.default_rng(0)
    dZ, X = random_matrix(random, 29, k, multiplier, "columns"), random_matrix(random, k, 45, multiplier, "rows")
    multiplier.library.block.restype = ctypes.c_int64
    block = multiplier.library.block()
    dW = np.full((29, 45), 0 if accumulate else np.nan, multiplier.dtype)
    multiplier.product("single_gemm", dZ, X, dW, accumulate=accumulate, workspace=multiplier.workspace(block, 45))
    size = np.abs(dZ).astype(np.float64) @ np.abs(X)
    np.testing.assert_array_less(np.abs(dW - dZ.astype(np.float64) @ X), 8 * multiplier.unit * size)


@pytest.mark.parametrize("name", ["packed_gemm", "single_gemm"])
def test_an_empty_sum_is_zero(multiplier: Kernels, name: str) -> None:
    A, B = np.empty((5, 0), multiplier.dtype), np.empty((0, 9), multiplier.dtype)
    C = np.ones((5, 9), multiplier.dtype)
    multiplier.product(name, A, B, C, accumulate=True, workspace=multiplier.workspace(1, 9))
    np.testing.assert_array_equal(C, 1)
    multiplier.product(name, A, B, C, accumulate=False, workspace=multiplier.workspace(1, 9))
    np.testing.assert_array_equal(C, 0)


def test_factors_are_rounded_to_the_nearest_even(bf16: Kernels) -> None:
    """There are ties, and numbers next to infinity. Products of numbers rounded before are bit-identical."""
    random = np.random.default_rng(0)
    A, B = (random.standard_normal(shape).astype(np.float32) for shape in ((9, 33), (33, 40)))
    A[:, ::3] = 1 + random.integers(0, 64, (9, 11)) / np.float32(256)
    B[::4] = 1 + random.integers(0, 64, (9, 40)) / np.float32(256)
    A[4, 5] = np.finfo(np.float32).max
    for left, right in ((A, B), (np.asfortranarray(A), np.asfortranarray(B))):
        C, expected = np.empty((2, 9, 40), np.float32)
        bf16.product("packed_gemm", left, right, C, accumulate=False, workspace=bf16.workspace(33, 40))
        with np.errstate(over="ignore"):
            exact = [rounded_to_bf16(x) for x in (left, right)]
        bf16.product("packed_gemm", *exact, expected, accumulate=False, workspace=bf16.workspace(33, 40))
        np.testing.assert_array_equal(C, expected)
        assert np.all(np.isinf(C[4]))


def test_nan_is_not_rounded_to_infinity(bf16: Kernels) -> None:
    A, B, C = np.ones((2, 3), np.float32), np.ones((3, 33), np.float32), np.empty((2, 33), np.float32)
    A[0, 2] = np.array(0x7F800001, np.uint32).view(np.float32)
    B[1, 32] = np.array(0x7F800001, np.uint32).view(np.float32)
    bf16.product("packed_gemm", A, B, C, accumulate=False, workspace=bf16.workspace(3, 33))
    assert np.all(np.isnan(C[0]))
    assert np.isnan(C[1, 32])
    np.testing.assert_array_equal(C[1, :32], 3)


FUNCTIONS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "exp": np.exp, "sigmoid": lambda x: 1 / (1 + np.exp(-x)), "tanh": np.tanh, "log": np.log,
    "erf": np.vectorize(math.erf),
}  # fmt: skip


def grid(dtype: type) -> np.ndarray:
    """Return numbers up to the overflow of exp, dense between -12 and 12, and down to the smallest subnormals."""
    limits = np.finfo(dtype)
    edge = 1.1 * np.log(float(limits.max))
    small = np.geomspace(float(limits.smallest_subnormal), 1, 50_000)
    return np.concatenate([np.linspace(-edge, edge, 300_001), np.linspace(-12, 12, 300_001), small, -small]).astype(
        dtype
    )


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_agree_with_longdouble(kernels: Kernels, name: str) -> None:
    x = grid(kernels.dtype) if name != "log" else np.abs(grid(kernels.dtype))
    limits, wide = np.finfo(kernels.dtype), x.astype(np.longdouble)
    with np.errstate(all="ignore"):
        exact = FUNCTIONS[name](wide)
        expected = exact.astype(kernels.dtype)
    y = kernels.map(name, x)
    normal = (np.abs(exact) >= limits.tiny) & (np.abs(exact) <= limits.max)
    bound = 2.5e-7 if kernels.dtype is np.float32 else 4e-16
    assert np.max(np.abs(y[normal] - exact[normal]) / np.abs(exact[normal])) < bound
    np.testing.assert_array_equal(y[np.isinf(expected)], expected[np.isinf(expected)])
    subnormal = ~normal & np.isfinite(expected)
    below = limits.tiny if name == "sigmoid" else 2 * limits.smallest_subnormal
    assert np.all(np.abs(y[subnormal] - expected[subnormal]) <= below)


def test_functions_have_their_limits(kernels: Kernels) -> None:
    largest = np.finfo(kernels.dtype).max
    x = np.array([np.inf, -np.inf, np.nan, 0.0, -0.0, largest, -largest], kernels.dtype)
    expected = {
        "exp": [np.inf, 0, np.nan, 1, 1, np.inf, 0],
        "sigmoid": [1, 0, np.nan, 0.5, 0.5, 1, 0],
        "tanh": [1, -1, np.nan, 0, -0.0, 1, -1],
    }
    for name, values in expected.items():
        y = kernels.map(name, x)
        np.testing.assert_array_equal(y, np.array(values, kernels.dtype))
    assert np.signbit(kernels.map("tanh", x))[4]
    np.testing.assert_array_equal(kernels.map("log", x[:4]), np.array([np.inf, np.nan, np.nan, -np.inf], x.dtype))


def test_tanh_of_a_subnormal_number_is_that_number(kernels: Kernels) -> None:
    x = np.finfo(kernels.dtype).smallest_subnormal * np.arange(-1000, 1000, dtype=kernels.dtype)
    np.testing.assert_array_equal(kernels.map("tanh", x), x)
