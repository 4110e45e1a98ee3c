"""A layer as C: its traced step with sizes and offsets of all arrays, and the weights in the order of the file."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ensue.engine.c_source import Source
from ensue.engine.execution import weights_of
from ensue.engine.program import Array, build
from ensue.engine.schedule import schedule
from ensue.engine.trace import trace
from ensue.extensions.exporting.c.precision import F32, stored
from ensue.text.characters import CharacterTokenizer
from ensue.text.vocabulary import Vocabulary
from ensue.types import State, leaves
from ensue.version import package_text

LANES, LINE = 64, 16
"""Sums of the checksum, and numbers of a line of the file: each array begins at a multiple of 64 bytes."""
GROUP = 4
"""The most symbols of a group of lexicon.h on average."""
_OF_NUMBERS = re.compile(
    r"\b(?:real|bits|bits_of|real_of|power_of_two|reduce|clamp|(?:exp|expm1|log1p|sigmoid|tanh|erf|log)_)\b"
)
"""The functions that functions.h defines, and the types that it is compiled for."""
_PRIME, _WORD = 0x9E3779B97F4A7C15, (1 << 64) - 1


@dataclass(frozen=True)
class Parts:
    """A model in C without weights: constants, and pieces in order, each a text or the name of a file."""

    constants: dict[str, Any]
    pieces: list[str]
    interface: str
    """The prefix of the names of the files `_header.h` and `_example.c`."""
    values: dict[str, Any]
    """Numbers and pieces in these files, by their names between two `@`."""
    usage: str
    """Lines of the README."""
    texts: dict[str, str] = field(default_factory=dict)
    """Texts of the user by such names. They are inserted last, since they may contain such names."""
    notes: list[str] = field(default_factory=list)
    """Lines about options of the model that C does not have."""


def piece(name: str) -> str:
    """Return a file of this folder, or of the engine."""
    return package_text(name if "/" in name else f"extensions/exporting/c/{name}")


def functions() -> str:
    """Return the functions of numbers for floats, and for doubles with names that end in `_64`."""
    text = piece("engine/functions.h")
    doubles = _OF_NUMBERS.sub(lambda name: f"{name[0].rstrip('_')}_64", text)
    return text + piece("doubles.h").replace("@FUNCTIONS@", doubles)


@dataclass
class Weights:
    """The arrays of the file of weights, and their offsets in numbers of 32 bits."""

    parts: list[NDArray[np.uint32]] = field(default_factory=list)
    size: int = 0
    precision: str = F32
    places: dict[bytes, int] = field(default_factory=dict)

    def add_matrix(self, matrix: Tensor) -> int:
        """Append a matrix (k, n) that `multiply` reads, and return its offset."""
        return self.add(stored(matrix, self.precision, 0, in_panels=True))

    def add_columns(self, table: Tensor) -> int:
        """Append a table (rows, width) that is read row by row with factors by column, and return its offset."""
        return self.add(stored(table, self.precision, 0))

    def add_rows(self, table: Tensor) -> int:
        """Append a table (rows, width) whose rows `read_row` of stored.h reads, and return its offset."""
        return self.add(stored(table, self.precision, 1))

    def add(self, numbers: NDArray[Any] | Tensor | bytes) -> int:
        """Append numbers of 32 bits, or bytes, unless the file has them already, and return their offset."""
        if isinstance(numbers, Tensor):
            numbers = numbers.detach().cpu().float().contiguous().numpy()
        content = numbers if isinstance(numbers, bytes) else numbers.astype(numbers.dtype.newbyteorder("<")).tobytes()
        assert isinstance(numbers, bytes) or numbers.dtype.itemsize == 4
        content += bytes(-len(content) % (4 * LINE))
        begin = self.places.setdefault(blake2b(content).digest(), self.size)
        if begin == self.size:
            self.parts.append(np.frombuffer(content, "<u4"))
            self.size += len(self.parts[-1])
        return begin

    def whole(self) -> NDArray[np.uint32]:
        """Return the content of the file, padded to a multiple of LANES."""
        content = np.concatenate(self.parts)
        return np.concatenate([content, np.zeros(-len(content) % LANES, "<u4")])


def checksum(numbers: NDArray[np.uint32]) -> int:
    """Return the result of `checksum` of weights.h."""
    sums, prime = np.zeros(LANES, np.uint64), np.uint64(_PRIME)
    for row in numbers.reshape(-1, LANES).astype(np.uint64):
        sums = (sums ^ row) * prime + (sums >> np.uint64(29))
    result = len(numbers)
    for lane in sums.tolist():
        result = ((result ^ lane) * _PRIME + (result >> 29)) & _WORD
    return result


def texts(contents: Sequence[bytes], weights: Weights) -> tuple[int, int]:
    """Append texts one after another, and return the offsets of the table of their first bytes and of the texts."""
    starts = np.cumsum([0, *map(len, contents)]).astype(np.uint32)
    return weights.add(starts), weights.add(b"".join(contents) + b"\0")


def character_table(tokenizer: CharacterTokenizer, weights: Weights) -> dict[str, Any]:
    """Return the constants of points.h."""
    points = sorted((ord(symbol), id) for id, symbol in enumerate(tokenizer.symbols) if id)
    table = np.array(points, np.uint32).reshape(-1, 2)
    return {"POINTS": len(points), "AT_POINTS": weights.add(table[:, 0]), "AT_IDS": weights.add(table[:, 1])}


def vocabulary(name: str, known: Vocabulary, weights: Weights) -> str:
    """Return the hash table of lexicon.h from symbols to their numbers."""
    mask = (1 << (len(known) // GROUP).bit_length()) - 1
    groups = [b""] * (mask + 1)
    for id, symbol in enumerate(known.symbols):
        text = symbol.encode("utf-8", "surrogatepass")
        groups[_hash(text) & mask] += _short(len(text)) + _short(id) + text
    places = texts(groups, weights)
    return f"static const vocabulary {name} = {{{', '.join(map(str, places))}, {mask}, {len(known)}}};\n"


def _short(number: int) -> bytes:
    """Return a number as `short_number` of lexicon.h reads it."""
    return bytes([number]) if number < 128 else bytes([128 | number & 127]) + _short(number >> 7)


def _hash(text: bytes) -> int:
    """Return the result of `hash_of` of lexicon.h."""
    result = 2166136261
    for byte in text:
        result = (result ^ byte) * 16777619 & 0xFFFFFFFF
    return result ^ result >> 15


class TokenScores(nn.Module):
    """A language model without its embedding, as a layer: from a vector to the scores of the next token."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.layers, self.head = model.layers, model.head
        self.d_in, self.d_out = model.features.d_out, model.vocabulary_size

    def init_state(self, batch_size: int) -> State:
        """Return the state of the layers."""
        return self.layers.init_state(batch_size)

    def step(self, x_t: Tensor, state: State) -> tuple[Tensor, State]:
        """One token."""
        h, state = self.layers.step(x_t, state)
        return self.head(h), state


@dataclass(frozen=True)
class PrintedStep:
    """A step as C, and the sizes of its arguments in numbers per row."""

    text: str
    """`hoist(model, count, x, stride, hoisted)` works out what does not depend on a state, of so many positions.
    `advance(model, rows, x, hoisted, leaves, output, work)` is a position of some rows, and changes their `leaves` to
    those behind it.
    """
    hoisted: int
    leaves: int
    work: int
    first: Tensor
    """The leaves before the first position, of as many rows as the step was printed for."""
    reads_input: bool
    """Whether `advance` reads x."""


@torch.no_grad()
def printed_step(layer: Any, weights: Weights, *, rows: int = 1, number: str = "") -> PrintedStep:
    """Return the step of a layer in C for up to `rows` rows, and add its matrices and vectors to `weights`. The names
    of its functions end with `number`. Raises `Untraceable`.
    """
    traced = trace(layer)
    program = build(traced)
    source = Source(f"position{number}", schedule(program.inference))
    tensors = weights_of(layer, traced)
    vectors = [weights.add(vector) for vector in tensors[: len(traced.vectors)]]
    kept: dict[int, int] = {}

    def place_of(number: int) -> str:
        if number not in kept:
            kept[number] = weights.add_matrix(tensors[len(traced.vectors) + number])
        return f"reals(model, {kept[number]})"

    room, width = _Room(rows), sum(product.hoisted.width for product in program.products if product.hoisted)
    places: dict[Array, str] = {program.output: "output"}
    starts = [rows * int(start) for start in np.cumsum([0, *traced.state_widths])]
    hoists, taken = [], 0
    for product in program.products:
        if product.hoisted is not None:
            places[product.hoisted] = f"(real *)hoisted + {taken}"
            n, k, factor = product.hoisted.width, product.factor.width, f"x + {product.factor.start}"
            matrix = place_of(product.matrix)
            hoists.append(f"    multiply(count, {n}, {k}, {factor}, stride, {matrix}, hoisted + {taken}, {width});")
            taken += n
    for array in source.numbers:
        if array.name == "input":
            places[array] = "(real *)x"
        elif array.name == "previous":
            places[array] = f"leaves + {starts[array.number]}"
        elif array.name == "vector":
            places[array] = f"(real *)reals(model, {vectors[array.number]})"
        elif array not in places:
            places[array] = room.take(array.width)
    given = ", ".join(places[array] for array in source.numbers)
    packed = ", ".join(place_of(number) for number, _ in source.matrices) or "NULL"
    strides = (width if array.name == "hoisted" else array.width for array in source.numbers)
    lines = [
        f"    real *const p[] = {{{given}}};",
        f"    const real *const packed[] = {{{packed}}};",
        f"    static const int64_t ld[] = {{{', '.join(map(str, strides))}}};",
        f"    static const int64_t n[] = {{{_listed(source.sizes)}}};",
        f"    position{number}(rows, n, p, ld, packed, multiply);",
        *(
            f"    memcpy(leaves + {start}, {places[array]}, (size_t)rows * {array.width} * sizeof(real));"
            for start, array in zip(starts, program.states, strict=False)
        ),
    ]
    step = source.text.replace(") {\n", ") {\n    (void)rows, (void)n, (void)ld, (void)packed, (void)multiply;\n", 1)
    step = "".join("NO_OVERLAP\n" if line.startswith("#pragma omp") else line for line in step.splitlines(True))
    functions = (
        ("hoist", "int64_t count, const real *x, int64_t stride, real *hoisted", hoists),
        ("advance", "int64_t rows, const real *x, const real *hoisted, real *leaves, real *output, real *work", lines),
    )
    for name, arguments, body in functions:
        unused = ", ".join(f"(void){argument.split()[-1].strip('*')}" for argument in arguments.split(","))
        step += f"\nstatic void {name}{number}(const NAME_model *model, {arguments}) {{\n    (void)model, {unused};\n"
        step += "\n".join(body) + "\n}\n"
    first = torch.cat([leaf.reshape(-1).float() for leaf in leaves(layer.init_state(rows))])
    reads_input = any(
        array.name == "input" and f"p[{number}]" in source.text for array, number in source.numbers.items()
    )
    return PrintedStep(step, width, starts[-1] // rows, max(1, room.size // rows), first, reads_input)


@dataclass
class _Room:
    """Allocates arrays in `work`."""

    rows: int
    size: int = 0

    def take(self, width: int) -> str:
        begin, self.size = self.size, self.size + self.rows * (-(-width // LINE) * LINE)
        return f"work + {begin}"


def _listed(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers)) or "0"


def c_array(kind: str, name: str, numbers: Sequence[int]) -> str:
    """Return a table in C."""
    return f"static const {kind} {name}[] = {{{_listed(numbers)}}};\n"


def c_string(text: str) -> str:
    """Return a string literal of C, with octal escapes for bytes that are not printable ASCII."""
    of = text.encode("utf-8", "surrogatepass")
    return '"' + "".join(chr(b) if 31 < b < 127 and b not in b'"\\?' else f"\\{b:03o}" for b in of) + '"'


def ranges(expression: str) -> str:
    """Return the ranges of code points that match an expression of `re`, as numbers of a table in C."""
    every = "".join(chr(point) for point in range(sys.maxunicode + 1))
    matches = re.finditer(f"(?:{expression})+", every)
    return ", ".join(f"{match.start()}, {match.end() - 1}" for match in matches)


def label_texts(names: Sequence[str], weights: Weights) -> dict[str, Any]:
    """Return the places of the names of labels, which end in a zero, and of their starts."""
    texts = [name.encode("utf-8", "surrogatepass") + b"\0" for name in names]
    starts = np.cumsum([0, *map(len, texts)]).astype(np.uint32)
    return {"AT_LABEL_STARTS": weights.add(starts), "AT_LABELS": weights.add(b"".join(texts))}
