"""Building blocks of C exports: arrays of weights, hash tables, and traced steps printed as C."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ensue.engine.c_passes import PassSource
from ensue.engine.execution import read_parameters
from ensue.engine.program import Array, build
from ensue.engine.schedule import schedule
from ensue.engine.trace import trace
from ensue.extensions.exporting.c.expressions import all_characters
from ensue.extensions.exporting.c.precision import F32, encode_matrix
from ensue.text.tokenizer import CharacterTokenizer
from ensue.text.vocabulary import Vocabulary
from ensue.types import State, leaves
from ensue.version import package_text

NUM_LANES, ALIGNMENT = 64, 16
"""The number of parallel sums of the checksum, and the alignment of arrays in 32-bit numbers."""
MEAN_BUCKET_SIZE = 4
"""The mean number of symbols in a bucket of a hash table in lexicon.h."""
_TYPED_NAMES = re.compile(
    r"\b(?:real|bits|bits_of|real_of|power_of_two|reduce|clamp|(?:exp|expm1|log1p|sigmoid|tanh|erf|log)_)\b"
)
"""The functions and types of functions.h that depend on the floating-point type."""
_MULTIPLIER, _MASK = 0x9E3779B97F4A7C15, (1 << 64) - 1


@dataclass(frozen=True)
class CModel:
    """The C source of a model without its weights and constants."""

    templates: list[str]
    """The code, in order: names of templates that end in `.h`, and texts."""
    interface: str
    """The prefix of the templates `INTERFACE_header.h` and `INTERFACE_example.c`."""
    values: dict[str, Any]
    """The values of the placeholders `@NAME@` in the header and the example."""
    usage: str
    """The usage lines of the README."""
    texts: dict[str, str] = field(default_factory=dict)
    """The values of placeholders for texts of the user. They are inserted last, as a text may contain a placeholder."""
    notes: list[str] = field(default_factory=list)
    """Notes about options of the model that the C code does not have."""


def read_template(name: str) -> str:
    """Return the text of a template."""
    return package_text(name if "/" in name else f"extensions/exporting/c/{name}")


def math_functions() -> str:
    """Return the math functions for floats, and for doubles with the suffix `_64`."""
    text = read_template("engine/functions.h")
    doubles = _TYPED_NAMES.sub(lambda name: f"{name[0].rstrip('_')}_64", text)
    return text + read_template("doubles.h").replace("@FUNCTIONS@", doubles)


@dataclass
class Weights:
    """The arrays of the file of weights, and the constants of the C code, such as sizes and offsets of arrays.

    Equal arrays are stored once. Offsets are counted in 32-bit numbers.
    """

    arrays: list[NDArray[np.uint32]] = field(default_factory=list)
    size: int = 0
    precision: str = F32
    offsets: dict[bytes, int] = field(default_factory=dict)
    """The offsets of arrays by their hashes."""
    constants: dict[str, Any] = field(default_factory=dict)

    def add_matrix(self, matrix: Tensor) -> int:
        """Append a matrix (k, n) for `multiply`, and return its offset."""
        return self.add(encode_matrix(matrix, self.precision, 0, in_panels=True))

    def add_rows(self, table: Tensor, axis: int = 1) -> int:
        """Append a table (rows, width) with a scale for each row, or column (`axis` 0), and return its offset."""
        return self.add(encode_matrix(table, self.precision, axis))

    def add(self, numbers: NDArray[Any] | Tensor | bytes) -> int:
        """Append 32-bit numbers or bytes, unless the file has them already, and return their offset."""
        if isinstance(numbers, Tensor):
            numbers = numbers.detach().cpu().float().contiguous().numpy()
        content = numbers if isinstance(numbers, bytes) else numbers.astype(numbers.dtype.newbyteorder("<")).tobytes()
        assert isinstance(numbers, bytes) or numbers.dtype.itemsize == 4
        content += bytes(-len(content) % (4 * ALIGNMENT))
        offset = self.offsets.setdefault(blake2b(content).digest(), self.size)
        if offset == self.size:
            self.arrays.append(np.frombuffer(content, "<u4"))
            self.size += len(self.arrays[-1])
        return offset

    def padded_content(self) -> NDArray[np.uint32]:
        """Return the content of the file, padded to a multiple of NUM_LANES."""
        content = np.concatenate(self.arrays)
        return np.concatenate([content, np.zeros(-len(content) % NUM_LANES, "<u4")])


def checksum(numbers: NDArray[np.uint32]) -> int:
    """Return the same checksum as the function `checksum` of weights.h."""
    sums, multiplier = np.zeros(NUM_LANES, np.uint64), np.uint64(_MULTIPLIER)
    for row in numbers.reshape(-1, NUM_LANES).astype(np.uint64):
        sums = (sums ^ row) * multiplier + (sums >> np.uint64(29))
    result = len(numbers)
    for lane in sums.tolist():
        result = ((result ^ lane) * _MULTIPLIER + (result >> 29)) & _MASK
    return result


def add_texts(contents: Sequence[bytes], weights: Weights) -> tuple[int, int]:
    """Append texts, and return the offsets of two arrays: the start positions of the texts, and their bytes."""
    starts = np.cumsum([0, *map(len, contents)]).astype(np.uint32)
    return weights.add(starts), weights.add(b"".join(contents) + b"\0")


def add_characters(tokenizer: CharacterTokenizer, weights: Weights) -> dict[str, Any]:
    """Add the sorted code points of characters and their ids, and return the constants of points.h."""
    points = sorted((ord(symbol), id) for id, symbol in enumerate(tokenizer.symbols) if id)
    table = np.array(points, np.uint32).reshape(-1, 2)
    return {"POINTS": len(points), "AT_POINTS": weights.add(table[:, 0]), "AT_IDS": weights.add(table[:, 1])}


def add_hash_table(name: str, vocabulary: Vocabulary, weights: Weights) -> str:
    """Add the hash table of a vocabulary, and return its C definition as a `vocabulary` (lexicon.h)."""
    mask = (1 << (len(vocabulary) // MEAN_BUCKET_SIZE).bit_length()) - 1
    buckets = [b""] * (mask + 1)
    for id, symbol in enumerate(vocabulary.symbols):
        text = symbol.encode("utf-8", "surrogatepass")
        buckets[_hash_bytes(text) & mask] += _encode_number(len(text)) + _encode_number(id) + text
    offsets = add_texts(buckets, weights)
    return f"static const vocabulary {name} = {{{', '.join(map(str, offsets))}, {mask}, {len(vocabulary)}}};\n"


def _encode_number(number: int) -> bytes:
    return bytes([number]) if number < 128 else bytes([128 | number & 127]) + _encode_number(number >> 7)


def _hash_bytes(text: bytes) -> int:
    result = 2166136261
    for byte in text:
        result = (result ^ byte) * 16777619 & 0xFFFFFFFF
    return result ^ result >> 15


class TokenScores(nn.Module):
    """A language model without its embedding, as a layer from token vectors to scores."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.layers, self.head = model.layers, model.head
        self.d_in, self.d_out = model.features.d_out, model.vocabulary_size

    def init_state(self, batch_size: int) -> State:
        return self.layers.init_state(batch_size)

    def step(self, x_t: Tensor, state: State) -> tuple[Tensor, State]:
        h, state = self.layers.step(x_t, state)
        return self.head(h), state


@dataclass(frozen=True)
class PrintedStep:
    """A layer's step in C, and the sizes of its arguments in numbers per row."""

    text: str
    """The functions `hoist` and `advance`.

    `hoist(model, count, x, stride, hoisted)` computes the products of `count` positions that do not depend on the
    state. `advance(model, rows, x, hoisted, leaves, output, work)` computes a position, and updates the state `leaves`.
    """
    hoisted: int
    leaves: int
    work: int
    initial: Tensor
    """The initial state of all rows."""
    reads_input: bool
    """Whether `advance` reads x."""


@torch.no_grad()
def print_step(layer: Any, weights: Weights, *, rows: int = 1, number: str = "") -> PrintedStep:
    """Return the step of a layer in C for up to `rows` rows, and add the parameters of the layer to `weights`.

    `number` is the suffix of the names of the functions. Raises `Untraceable`.
    """
    traced = trace(layer)
    program = build(traced)
    source = PassSource(f"position{number}", schedule(program.inference))
    tensors = traced.weights(read_parameters(layer, traced))
    vectors = [weights.add(vector) for vector in tensors[: len(traced.vectors)]]
    matrices: dict[int, int] = {}

    def matrix_pointer(number: int) -> str:
        if number not in matrices:
            matrices[number] = weights.add_matrix(tensors[len(traced.vectors) + number])
        return f"reals(model, {matrices[number]})"

    workspace, width = 0, sum(product.hoisted.width for product in program.products if product.hoisted)
    pointers: dict[Array, str] = {program.output: "output"}
    starts = [rows * int(start) for start in np.cumsum([0, *traced.state_widths])]
    hoists, offset = [], 0
    for product in program.products:
        if product.hoisted is not None:
            pointers[product.hoisted] = f"(real *)hoisted + {offset}"
            n, k, factor = product.hoisted.width, product.factor.width, f"x + {product.factor.start}"
            matrix = matrix_pointer(product.matrix)
            hoists.append(f"    multiply(count, {n}, {k}, {factor}, stride, {matrix}, hoisted + {offset}, {width});")
            offset += n
    for array in source.numbers:
        if array.name == "input":
            pointers[array] = "(real *)x"
        elif array.name == "previous":
            pointers[array] = f"leaves + {starts[array.number]}"
        elif array.name == "vector":
            pointers[array] = f"(real *)reals(model, {vectors[array.number]})"
        elif array not in pointers:
            pointers[array] = f"work + {workspace}"
            workspace += rows * -(-array.width // ALIGNMENT) * ALIGNMENT
    arrays = ", ".join(pointers[array] for array in source.numbers)
    packed = ", ".join(matrix_pointer(number) for number, _ in source.matrices) or "NULL"
    strides = (width if array.name == "hoisted" else array.width for array in source.numbers)
    lines = [
        f"    real *const p[] = {{{arrays}}};",
        f"    const real *const packed[] = {{{packed}}};",
        f"    static const int64_t ld[] = {{{', '.join(map(str, strides))}}};",
        f"    static const int64_t n[] = {{{', '.join(map(str, source.sizes)) or '0'}}};",
        f"    position{number}(rows, n, p, ld, packed, multiply);",
        *(
            f"    memcpy(leaves + {start}, {pointers[array]}, (size_t)rows * {array.width} * sizeof(real));"
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
    initial = torch.cat([leaf.reshape(-1).float() for leaf in leaves(layer.init_state(rows))])
    reads_input = any(array.name == "input" and f"p[{index}]" in source.text for array, index in source.numbers.items())
    return PrintedStep(step, width, starts[-1] // rows, max(1, workspace // rows), initial, reads_input)


def c_array(kind: str, name: str, numbers: Sequence[int]) -> str:
    """Return an array of numbers in C. Without numbers, the array is {0}."""
    return f"static const {kind} {name}[] = {{{', '.join(map(str, numbers)) or '0'}}};\n"


def c_string(text: str) -> str:
    """Return a string literal of C, with octal escapes for bytes that are not printable ASCII."""
    utf8 = text.encode("utf-8", "surrogatepass")
    return '"' + "".join(chr(b) if 31 < b < 127 and b not in b'"\\?' else f"\\{b:03o}" for b in utf8) + '"'


def ranges(expression: str) -> str:
    """Return the ranges of code points that match a regular expression, as C numbers."""
    matches = re.finditer(f"(?:{expression})+", all_characters())
    return ", ".join(f"{match.start()}, {match.end() - 1}" for match in matches)


def add_label_names(names: Sequence[str], weights: Weights) -> dict[str, Any]:
    """Add the zero-terminated names of labels, and return their offsets as constants."""
    starts, texts = add_texts([name.encode("utf-8", "surrogatepass") + b"\0" for name in names], weights)
    return {"AT_LABEL_STARTS": starts, "AT_LABELS": texts}
