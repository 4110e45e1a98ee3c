"""Compile a folder of C and call its functions: `Interface` is its interface in Python."""

import ctypes
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch

from extensions.exporting.c.printing import files_of

COMPILERS = [name for name in ("gcc", "clang") if shutil.which(name)]
STRICT = ["-std=c11", "-Wall", "-Wextra", "-Werror", "-pedantic"]
NUMBERS = ["-fno-math-errno", "-fno-trapping-math", "-ffp-contract=off"]
SANITIZED = ["-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
CLOSE = 1e-5
"""The tolerance of probabilities."""
NEAR = {"f16": CLOSE, "int8": 1e-3}
"""Tolerances by precision: in int8 the inputs of products, which are large in these models, are rounded to 16 bits."""
OK, NO_FILE, DAMAGED, MEMORY, ARGUMENT, BAD_STATE, NUMBERS_FAIL, TOO_LONG = 0, -1, -2, -3, -4, -5, -6, -7


def compiled(folder: Path, *arguments: str, compiler: str = "", options: Sequence[str] = ("-O1",)) -> None:
    command = [compiler or COMPILERS[0], *STRICT, *NUMBERS, *options, *arguments, "-lm"]
    completed = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert completed.returncode == 0, completed.stderr


ODD_BYTES = np.random.default_rng(0).integers(0, 256, 5000, np.uint8).tobytes()
ODD_TEXTS = (
    b"", ODD_BYTES, b"\0" * 99, b"x" * 70_000, b"<unk" * 500, b"\xf0\x9f" * 400, b"\n" * 999, b"a " * 50_000,
    b"-." * 20_000, b"a'b" * 9999, b"\xed\xa0\x80\xff", "\u0301".encode() * 9999, b"\xef\xbb\xbfsea",
)  # fmt: skip
"""Invalid, long and repetitive texts."""


class Example:
    """The example program of a model with sanitizers. A call returns its output, or with a `code` its errors."""

    def __init__(self, files: dict[str, bytes], folder: Path, compiler: str) -> None:
        self.folder = put(files, folder)
        (name,) = (file.removesuffix(".h") for file in files if file.endswith(".h"))
        self.program = f"./{name}"
        compiled(folder, "-o", name, "example.c", f"{name}.c", compiler=compiler, options=SANITIZED)

    def __call__(self, text: bytes, *arguments: str, code: int = 0) -> bytes:
        command = [self.program, *arguments]
        done = subprocess.run(command, cwd=self.folder, input=text, capture_output=True, check=False)
        assert (done.returncode, bool(done.stderr)) == (code, bool(code)), done.stderr
        return done.stderr if code else done.stdout


def library(folder: Path, *files: str) -> ctypes.CDLL:
    compiled(folder, "-shared", "-fPIC", "-o", "tested.so", *files)
    return ctypes.CDLL(str(folder / "tested.so"))


def put(files: dict[str, bytes], folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return folder


def cut(content: bytes, places: Sequence[int]) -> list[bytes]:
    """Return a text divided at some places."""
    ends = sorted(min(place, len(content)) for place in places)
    return [content[begin:end] for begin, end in zip([0, *ends], [*ends, len(content)], strict=True)]


def lines_fed(feed: Callable[..., Any], model: Any, session: Any, pieces: Sequence[bytes]) -> Iterator[int]:
    """Yield the code of NAME_feed for each line of a text in pieces."""
    used = ctypes.c_size_t()
    for piece in (*pieces, None):
        at, code = 0, 1
        while code or at < len(piece or b""):
            rest = None if piece is None else piece[at:]
            code = feed(model, session, rest, ctypes.c_size_t(len(rest or b"")), ctypes.byref(used))
            at += used.value
            if code:
                yield code


def twin(matrix: np.ndarray, precision: str, axis: int) -> np.ndarray:
    """Return a matrix rounded to a precision."""
    if precision != "int8":
        return matrix.astype({"f32": np.float32, "f16": np.float16}[precision]).astype(np.float32)
    rounded_matrix = np.zeros_like(matrix)
    for line, to in zip(np.moveaxis(matrix, axis, -1), np.moveaxis(rounded_matrix, axis, -1), strict=True):
        factor = np.float32(abs(line).max() / 127) or np.float32(1)
        to[:] = np.rint(line / factor) * factor
    return rounded_matrix


def rounded(model: torch.nn.Module, precision: str, *, but: str) -> None:
    """Round the matrices of a model, except names that match `but`; each row is a column of C's products."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.ndim == 2 and not re.search(but, name):
                parameter.copy_(torch.from_numpy(twin(parameter.float().numpy(), precision, 1)))


class CToken(ctypes.Structure):
    _fields_ = [
        ("id", ctypes.c_uint32), ("is_unknown", ctypes.c_int), ("begin", ctypes.c_uint64), ("end", ctypes.c_uint64),
        ("nats", ctypes.c_double), ("text", ctypes.c_void_p), ("size", ctypes.c_size_t), ("blank", ctypes.c_int),
    ]  # fmt: skip


class CSampling(ctypes.Structure):
    _fields_ = [
        ("temperature", ctypes.c_double), ("top_k", ctypes.c_uint32), ("top_p", ctypes.c_double),
        ("min_p", ctypes.c_double), ("repetition_penalty", ctypes.c_double),
    ]  # fmt: skip


class Read(NamedTuple):
    id: int
    begin: int
    end: int
    nats: float
    text: bytes


class Interface:
    """A compiled model in a folder; `call` calls a function by its name."""

    returns: ClassVar[dict[str, Any]] = {}
    """The return types of functions that do not return `int`."""

    def __init__(self, pipeline: Any, folder: Path, name: str, *, embed: bool = False, precision: str = "f32") -> None:
        self.pipeline, self.name = pipeline, name
        self.folder = put(files_of(pipeline, name, embed=embed, precision=precision), folder)
        self.library, self.model = library(folder, f"{name}.c"), ctypes.c_void_p()
        for function, kind in self.returns.items():
            if hasattr(self.library, f"{name}_{function}"):
                getattr(self.library, f"{name}_{function}").restype = kind
        self.path = str(folder / f"{name}.weights").encode()
        assert self.open(self.path) == OK

    def open(self, path: bytes | None) -> int:
        return int(self.call("open", ctypes.byref(self.model), path))

    def call(self, function: str, *arguments: Any) -> Any:
        return getattr(self.library, f"{self.name}_{function}")(*arguments)


class Carried(Interface):
    """A compiled language model."""

    returns: ClassVar = {"state_size": ctypes.c_size_t, "message": ctypes.c_char_p}
    size = ctypes.c_size_t

    def begun(self, seed: int = 1) -> Any:
        state = ctypes.create_string_buffer(self.call("state_size"))
        assert self.call("begin", self.model, state, ctypes.c_uint64(seed)) == OK
        return state

    def feed(self, state: Any, piece: bytes | None, room: int = 32) -> Iterator[Read]:
        tokens, used, at = (CToken * room)(), ctypes.c_size_t(), 0
        while True:
            rest = None if piece is None else piece[at:]
            count = self.call(
                "feed", self.model, state, rest, self.size(len(rest or b"")), ctypes.byref(used), tokens,
                self.size(room),
            )  # fmt: skip
            assert count >= 0
            for token in tokens[:count]:
                yield Read(token.id, token.begin, token.end, token.nats, ctypes.string_at(token.text, token.size))
            at += used.value
            if at == len(piece or b"") and (piece is not None or not count):
                return

    def read(self, *pieces: bytes) -> list[Read]:
        state = self.begun()
        return [token for piece in (*pieces, None) for token in self.feed(state, piece)]

    def written(self, prompt: str, count: int, seed: int, **sampling: Any) -> bytes:
        state, token = self.begun(seed), CToken()
        list(self.feed(state, prompt.encode()))
        options, text = CSampling(**{"temperature": 1.0, **sampling}), b""
        for _ in range(count):
            assert self.call("next", self.model, state, ctypes.byref(options), ctypes.byref(token)) == OK
            text += b" " * token.blank + ctypes.string_at(token.text, token.size)
        return text
