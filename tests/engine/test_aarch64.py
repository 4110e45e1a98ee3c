"""The engine's C code for 64-bit ARM, compiled by zig and gcc and run by qemu, equals the fold on this processor."""

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
from engine.twins import TOLERANCE, arguments, built, close, engine, naive, outcome
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
    """Passes whose functions run in qemu: their memory is sent, and the changed memory is received."""

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
        source = "\n".join([*headers, text, driver]).encode()
        result = subprocess.run(command, input=source, env=os.environ | caches, capture_output=True, check=False)
        assert result.returncode == 0, result.stderr.decode()

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
        """Return a function with the arguments of the C function, which are addresses of tables."""
        source = self.sources[name]

        def call(header: Any, table: Any, ends: Any, sizes: Any, *others: Any) -> None:
            head = _numbers(header, 14)
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

        return call

    def _places(self, *tensors: Tensor) -> list[int]:
        for tensor in tensors:
            storage = tensor.untyped_storage()
            self._memory[storage.data_ptr()] = torch.empty(0, dtype=torch.uint8).set_(storage)
        return [number for tensor in tensors for number in self._place(tensor.data_ptr(), 0)]

    def _place(self, address: int, size: int) -> tuple[int, int]:
        """Return the index of a memory and the offset in it; unknown addresses are work memory of `size` numbers."""
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
        result = subprocess.run([str(QEMU), str(self._program)], input=b"".join(parts), capture_output=True, check=True)
        received = torch.frombuffer(bytearray(result.stdout), dtype=torch.uint8)
        for memory, content in zip(memories, received.split([len(memory) for memory in memories]), strict=True):
            memory.copy_(content)
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
    """Run the pass without gradients array by array, since a plan has addresses of this process."""
    if is_known:
        return None
    values = Values.of([x, *states, *runner.trace.weights(parameters)], runner.trace)
    output, finals, _ = runner.forward(values, packing, save=False)
    return [output, *finals]


def _numbers(table: Any, shape: int | tuple[int, int]) -> list[Any]:
    """Return the first numbers of a table."""
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
def test_cells_on_arm_equal_their_fold(
    name: str,
    d: int,
    dtype: torch.dtype,
    compiler: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    kept_folder: Callable[[str], Path],
) -> None:
    """There are more ragged rows than a tile has, and more features than a panel has."""
    cache = kept_folder("zig")  # zig also compiles the C library, which takes half a minute
    monkeypatch.setattr(
        execution, "c_passes", lambda program, dtype, kernel=None: Passes(program, dtype, compiler, tmp_path, cache)
    )
    monkeypatch.setattr(Runner, "infer", infer)
    layer = built(name, 19, d, dtype)
    args = arguments(layer, 29, 6, is_ragged=True)
    close(outcome(engine, layer, args), outcome(naive, layer, args), TOLERANCE[dtype])
    with torch.no_grad():
        close(list(engine(layer, *args)[:1]), list(engine(layer, *args)[:1]))


@pytest.mark.parametrize("compiler", ARM_COMPILERS)
@pytest.mark.parametrize("name", FILES)
def test_files_compile_for_arm(name: str, compiler: str, tmp_path: Path, kept_folder: Callable[[str], Path]) -> None:
    caches = dict.fromkeys(("ZIG_GLOBAL_CACHE_DIR", "ZIG_LOCAL_CACHE_DIR"), str(kept_folder("zig")))
    options = [option for option in c_library.FLAGS if option not in ("-march=native", "-shared")]
    text = "\n".join(package_text(file) for file in (*(f"engine/{header}" for header in c_library.HEADERS), name))
    for is_double in (0, 1):
        defines = [f"-DREAL_IS_DOUBLE={is_double}", "-DDIMENSION=100", "-DNEGATIVES=5"]
        command = [*ARM_COMPILERS[compiler], *options, *defines, "-x", "c", "-", "-c", "-o", "out.o"]
        result = subprocess.run(
            command, cwd=tmp_path, input=text.encode(), env=os.environ | caches, capture_output=True, check=False
        )
        assert result.returncode == 0, result.stderr.decode()


ARM = REPOSITORY / "build" / "arm64"
"""The folder in which `tests/engine/arm64.sh` installs Debian's Python for ARM and torch."""
CROSS = next((name for name in ARM_COMPILERS if name != "zig"), None)


PROFILE = """
from ensue.training.machine import ComputeMode, Machine, Profile, Timing, WORKLOADS

machine = Machine.current()
steps = {workload: [Timing(way=ComputeMode(), milliseconds=1.0)] for workload in WORKLOADS}
machine.path.parent.mkdir(parents=True)
machine.path.write_text(Profile(machine=machine, date="2026-01-01", load=0.0, steps=steps).model_dump_json())
"""
"""A program that writes a machine profile, since measuring it takes more than an hour in qemu."""


@pytest.mark.skipif(
    not ARM.exists() or CROSS is None, reason="no build/arm64 (tests/engine/arm64.sh), or no gcc for ARM"
)
def test_quickstart_runs_on_arm_with_compiled_cells(tmp_path: Path) -> None:
    """The cells are compiled on this processor and loaded in qemu."""
    pure = [path for path in sys.path if path.endswith("site-packages")]
    paths = os.pathsep.join([str(ARM / "site"), str(Path(c_library.__file__).parents[2]), *pure])
    environment = {
        "PATH": os.environ["PATH"], "PYTHONPATH": paths, "QEMU_LD_PREFIX": str(ARM / "root"), "OMP_NUM_THREADS": "1",
        "CC": str(CROSS), "ENSUE_CFLAGS": "-march=armv8-a", "ENSUE_CACHE": str(tmp_path / "cache"),
    }  # fmt: skip
    python = [str(QEMU), str(ARM / "root" / "usr" / "bin" / "python3.11")]
    for command in (["-c", PROFILE], ["-m", "ensue", "quickstart", "--seconds", "5"]):
        result = subprocess.run(
            [*python, *command], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )
        assert result.returncode == 0, result.stderr
    assert "no compiled cells" not in result.stderr
    assert list((tmp_path / "cache").rglob("*.so"))
