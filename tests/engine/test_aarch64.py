"""The engine's C on an ARM processor of 64 bits: compiled by zig and gcc, run by qemu, against the fold on this one."""

import ctypes
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from conftest import REPOSITORY
from engine.twins import TOLERANCE, built, close, engine, everything, given, naive
from ensue.engine import c_library, c_passes, execution
from ensue.engine.program import Program
from ensue.engine.runner import Runner, Values
from ensue.engine.storage import Packing
from ensue.version import package_text
from other_processors import ARM_COMPILERS, QEMU

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not ARM_COMPILERS, reason="no compiler for ARM (apt-get install gcc-aarch64-linux-gnu)"),
    pytest.mark.skipif(QEMU is None, reason="no qemu-aarch64 (apt-get install qemu-user)"),
]
FILES = (
    "engine/products.c", "engine/passes.c", "decode/beam.c", "models/decoder_step.c", "nn/recurrent/clockwork.c",
    "extensions/word_vectors/updates.c",
)  # fmt: skip
STRICT = ("-static", "-Wall", "-Werror")


class Passes(c_passes.CompiledPasses):
    """Passes whose functions are called there: what they read and write is sent, and what they leave comes back."""

    def __init__(self, program: Program, dtype: torch.dtype, compiler: str, folder: Path, cache: Path) -> None:
        sources = c_passes._sources(program)
        self.sources, self.products = sources, self  # type: ignore[assignment]
        self.functions = {name: self._of(name) for name in sources}  # type: ignore[assignment]
        self.chunk = (0, 0)
        self.dtype, self.bf16_kernel, self.multiply_packed = dtype, None, 0
        self._memory: dict[int, Tensor] = {}
        self._matrices: list[Tensor] = []
        text = c_passes.c_text(sources, program)
        headers = [package_text(f"engine/{name}") for name in (*c_library.HEADERS, "products.c")]
        driver = Path(__file__).with_name("elsewhere.c").read_text()
        self._program = folder / "program"
        options = [option for option in c_library.FLAGS if option not in ("-march=native", "-shared", "-fPIC")]
        defines = [f"-DREAL_IS_DOUBLE={int(dtype == torch.float64)}", f"-DPASSES={','.join(sources)}"]
        command = [
            *ARM_COMPILERS[compiler], *STRICT, *options, *defines, "-x", "c", "-", "-o", str(self._program), "-lm",
        ]  # fmt: skip
        caches = dict.fromkeys(("ZIG_GLOBAL_CACHE_DIR", "ZIG_LOCAL_CACHE_DIR"), str(cache))
        whole = "\n".join([*headers, text, driver]).encode()
        done = subprocess.run(command, input=whole, env=os.environ | caches, capture_output=True, check=False)
        assert done.returncode == 0, done.stderr.decode()

    def packed(self, matrix: Tensor, sizes: tuple[int, int], *others: object) -> Tensor:
        assert matrix.shape == sizes
        self._matrices.append(matrix)
        return matrix

    def multiply(
        self, a: Tensor, b: Tensor, out: Tensor, *, accumulate: bool = False, packed_weights: object = None
    ) -> None:
        product = torch.empty_like(out).contiguous()
        m, n, k = len(a), b.shape[1], len(b)
        self._call([-1, m, n, k, *a.stride(), *b.stride(), n, *self._places(a, b, product)])
        out.copy_(product + out if accumulate else product)

    def run(self, name: str, arrays: Any, packing: Any, matrices: Any, *, finals: Any, **others: Any) -> None:
        self._matrices = []
        for tensor in [
            *(s.tensor for s in arrays.values()),
            *(s.start for s in arrays.values()),
            *(f for _, f in finals),
        ]:
            if tensor is not None:
                self._places(tensor)
        super().run(name, arrays, packing, matrices, finals=finals, **others)

    def _of(self, name: str) -> Callable[..., None]:
        """As the function of C: its arguments are addresses of tables."""
        source = self.sources[name]

        def called(of: Any, table: Any, ends: Any, sizes: Any, *others: Any) -> None:
            head = _numbers(of, 14)
            positions, batch, arrays, finals = head[0], head[3], head[8], head[9]
            sent = [list(self.sources).index(name), *head[:12]]
            sent += [number for start in head[12:] for number in (ctypes.c_int64 * positions).from_address(start)]
            for base, ld, start, start_ld, extent, _ in _numbers(table, (arrays, 6)):
                sent += [*self._place(base, batch * ld), *self._place(start, 0), ld, start_ld, extent]
            for number, width, to in _numbers(ends, (finals, 3)):
                sent += [number, width, *self._place(to, 0)]
            sent += [len(source.sizes), *_numbers(sizes, len(source.sizes)), len(self._matrices)]
            for matrix in self._matrices:
                sent += [*matrix.shape, *matrix.stride(), *self._places(matrix)]
            self._call(sent)

        return called

    def _places(self, *tensors: Tensor) -> list[int]:
        for tensor in tensors:
            whole = tensor.untyped_storage()
            self._memory[whole.data_ptr()] = torch.empty(0, dtype=torch.uint8).set_(whole)
        return [number for tensor in tensors for number in self._place(tensor.data_ptr(), 0)]

    def _place(self, address: int, size: int) -> tuple[int, int]:
        """The number of a memory, and the byte in it. What a pass has for itself is as many numbers as `size` says."""
        if not address:
            return -1, 0
        for number, (start, memory) in enumerate(self._memory.items()):
            if start <= address < start + len(memory):
                return number, address - start
        self._memory[address] = torch.zeros(size * self.dtype.itemsize, dtype=torch.uint8)
        return len(self._memory) - 1, 0

    def _call(self, numbers: list[int]) -> None:
        memories = list(self._memory.values())
        parts = [np.array([len(memories)], dtype=np.int64).tobytes()]
        for memory in memories:
            parts += [np.array([len(memory)], dtype=np.int64).tobytes(), memory.numpy().tobytes()]
        parts.append(np.array(numbers, dtype=np.int64).tobytes())
        done = subprocess.run([str(QEMU), str(self._program)], input=b"".join(parts), capture_output=True, check=True)
        left = torch.frombuffer(bytearray(done.stdout), dtype=torch.uint8)
        for memory, found in zip(memories, left.split([len(memory) for memory in memories]), strict=True):
            memory.copy_(found)
        self._memory = {}


def infer(
    runner: Runner,
    x: Tensor,
    states: list[Tensor],
    packing: Packing,
    parameters: list[Tensor],
    *,
    is_known: bool = False,
) -> list[Tensor] | None:
    """Run the pass without gradients array by array, since a plan has addresses of this machine."""
    if is_known:
        return None
    values = Values.of([x, *states, *runner.trace.weights(parameters)], runner.trace)
    output, finals, _ = runner.forward(values, packing, save=False)
    return [output, *finals]


def _numbers(table: Any, shape: int | tuple[int, int]) -> list[Any]:
    """The first numbers of a table."""
    numbers: list[Any] = np.array(table, dtype=np.int64)[: np.prod(shape)].reshape(shape).tolist()
    return numbers


@pytest.mark.parametrize("compiler", ARM_COMPILERS)
@pytest.mark.parametrize(
    ("name", "d", "dtype"),
    [
        ("lstm", 37, torch.float32),
        ("layer norm", 37, torch.float64),
        ("minlstm", 37, torch.float64),
        ("gated delta rule", 16, torch.float32),
    ],
)
def test_a_cell_is_its_fold(
    name: str,
    d: int,
    dtype: torch.dtype,
    compiler: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    kept_folder: Callable[[str], Path],
) -> None:
    """Values and every gradient, of ragged rows: more than a tile of them, and more features than a panel has."""
    cache = kept_folder("zig")  # of the C library, too, which takes half a minute
    monkeypatch.setattr(
        execution, "c_passes", lambda program, dtype, kernel=None: Passes(program, dtype, compiler, tmp_path, cache)
    )
    monkeypatch.setattr(Runner, "infer", infer)
    layer = built(name, 19, d, dtype)
    args = given(layer, 29, 6, is_ragged=True)
    close(everything(engine, layer, args), everything(naive, layer, args), TOLERANCE[dtype])
    with torch.no_grad():
        close(list(engine(layer, *args)[:1]), list(engine(layer, *args)[:1]))


@pytest.mark.parametrize("compiler", ARM_COMPILERS)
@pytest.mark.parametrize("name", FILES)
def test_every_file_is_compiled(name: str, compiler: str, tmp_path: Path, kept_folder: Callable[[str], Path]) -> None:
    caches = dict.fromkeys(("ZIG_GLOBAL_CACHE_DIR", "ZIG_LOCAL_CACHE_DIR"), str(kept_folder("zig")))
    options = [option for option in c_library.FLAGS if option not in ("-march=native", "-shared")]
    text = "\n".join(package_text(file) for file in (*(f"engine/{header}" for header in c_library.HEADERS), name))
    for is_double in (0, 1):
        defines = [f"-DREAL_IS_DOUBLE={is_double}", "-DDIMENSION=100", "-DNEGATIVES=5"]
        command = [*ARM_COMPILERS[compiler], *options, *defines, "-x", "c", "-", "-c", "-o", "out.o"]
        done = subprocess.run(
            command, cwd=tmp_path, input=text.encode(), env=os.environ | caches, capture_output=True, check=False
        )
        assert done.returncode == 0, done.stderr.decode()


ARM = REPOSITORY / "build" / "arm64"
"""`tests/engine/arm64.sh` puts Debian's Python for ARM and torch there."""
CROSS = next((name for name in ARM_COMPILERS if name != "zig"), None)


PROFILE = """
from ensue.training.machine import ComputeMode, Machine, Profile, Timing, WORKLOADS

machine = Machine.current()
steps = {workload: [Timing(way=ComputeMode(), milliseconds=1.0)] for workload in WORKLOADS}
machine.path.parent.mkdir(parents=True)
machine.path.write_text(Profile(machine=machine, date="2026-01-01", load=0.0, steps=steps).model_dump_json())
"""
"""Writes the machine's profile: to measure it takes an emulated processor more than an hour."""


@pytest.mark.skipif(
    not ARM.exists() or CROSS is None, reason="no build/arm64 (tests/engine/arm64.sh), or no gcc for ARM"
)
def test_the_first_minute(tmp_path: Path) -> None:
    """Training, pages and answers, with cells that are compiled here and loaded there."""
    pure = [path for path in sys.path if path.endswith("site-packages")]
    paths = os.pathsep.join([str(ARM / "site"), str(Path(c_library.__file__).parents[2]), *pure])
    environment = {
        "PATH": os.environ["PATH"], "PYTHONPATH": paths, "QEMU_LD_PREFIX": str(ARM / "root"), "OMP_NUM_THREADS": "1",
        "CC": str(CROSS), "ENSUE_CFLAGS": "-march=armv8-a", "ENSUE_CACHE": str(tmp_path / "cache"),
    }  # fmt: skip
    python = [str(QEMU), str(ARM / "root" / "usr" / "bin" / "python3.11")]
    for command in (["-c", PROFILE], ["-m", "ensue", "quickstart", "--seconds", "5"]):
        done = subprocess.run(
            [*python, *command], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
    assert "no compiled cells" not in done.stderr
    assert list((tmp_path / "cache").rglob("*.so"))
