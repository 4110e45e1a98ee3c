"""ELMo (Peters et al. 2018): the arrays of an hdf5 file and the options.json beside it, converted.

The names and layouts are those of allenai/bilm-tf. Matrices are stored (in, out); an LSTM's has input and output above
each other and its gates side by side, input, candidate, forget, output, with 1 still to be added to the forget gate's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import BaseModel, Field, TypeAdapter, ValidationError
from torch import Tensor

from ensue.errors import DataError, EnsueError
from ensue.extensions.bidirectional.model import BidirectionalParts
from ensue.extensions.bidirectional.recipe import BidirectionalRecipe
from ensue.recipe import validate_recipe
from ensue.text.character_ngrams import NUM_CHARACTERS
from ensue.text.tokenizer import UNKNOWN
from ensue.text.words import LINE_END, WordTokenizer
from ensue.training.imported import Imported, read_json_file

SUFFIXES = (".hdf5", ".h5")
SIGN = b"\x89HDF\r\n\x1a\n"
MAX_DEPTH = 16
MOST_BYTES = 1 << 32
"""The most bytes of all arrays; the largest published ELMo has less than a tenth."""


def weights_of(path: Path) -> Path | None:
    """The hdf5 file that a path names, or the only weights in a directory with options; None for no ELMo."""
    if path.is_file():
        return path if path.suffix in SUFFIXES else None
    found = sorted(file for suffix in SUFFIXES for file in path.glob(f"*weights*{suffix}"))
    return found[0] if len(found) == 1 and options_of(found[0]) else None


def options_of(weights: Path) -> Path | None:
    """The options beside the weights: of the same name, or the only ones."""
    named = weights.with_name(weights.name.replace("weights", "options")).with_suffix(".json")
    found = [named] if named.exists() else sorted(weights.parent.glob("*options*.json"))
    return found[0] if len(found) == 1 else None


def import_elmo(path: Path) -> Imported | None:
    """Return a published ELMo; None for files of another kind.

    Raises DataError without its options, and for a file that is cut off.
    """
    if (weights := weights_of(path)) is None:
        return None
    options = options_of(weights)
    if options is None:
        raise DataError("no options.json beside it, which says how the arrays belong together", weights)
    elmo = from_elmo(_arrays(weights), read_json_file(options))
    recipe = elmo.recipe.model_copy(update={"about": f"imported from {path.name}"})
    config = {"vocabulary_size": elmo.parts.vocabulary_size}
    return Imported(path, (weights, options), "ELMo", recipe, elmo.parts, config, dict(elmo.weights))


def _arrays(path: Path) -> dict[str, NDArray[np.floating[Any]]]:
    """The arrays by their paths in the file. Their sizes are compared with the file's before one is read."""
    try:
        import h5py  # noqa: PLC0415 (an extra)
    except ImportError:
        raise EnsueError('reading hdf5 needs h5py: pip install "ensue[elmo]"') from None
    with path.open("rb") as file:
        if file.read(len(SIGN)) != SIGN:
            raise DataError("no hdf5 file", path)
    found: dict[str, Any] = {}
    try:
        with h5py.File(path, "r") as content:
            datasets = dict(_datasets(h5py, content, path))
            size = sum(int(np.prod(item.shape, dtype=object)) * item.dtype.itemsize for item in datasets.values())
            if size > min(MOST_BYTES, 4 * path.stat().st_size):
                raise DataError(f"cut off or altered: arrays of {size:,} bytes in {path.stat().st_size:,}", path)
            for name, item in datasets.items():
                found[name] = np.asarray(item[()])
    except (OSError, RuntimeError, KeyError, ValueError, TypeError) as error:
        raise DataError(f"cannot be read: cut off, altered or no hdf5 ({error})", path) from None
    return found


def _datasets(h5py: Any, group: Any, path: Path, before: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the data sets of a group and of the groups in it with their paths.

    Raises DataError for one whose numbers are in other files, which may be any file of the user, and for groups nested
    deeper than those of a published ELMo. Links to other files and groups are passed over.
    """
    if before.count("/") > MAX_DEPTH:
        raise DataError(f"groups nested more than {MAX_DEPTH} deep", path)
    for name in group:
        if group.get(name, getlink=True, getclass=True) is not h5py.HardLink:
            continue
        kind = group.get(name, getclass=True)
        if kind is h5py.Group:
            yield from _datasets(h5py, group[name], path, f"{before}{name}/")
        elif kind is h5py.Dataset:
            item = group[name]
            if item.external or item.is_virtual:
                raise DataError(f"{before}{name}: its numbers are in another file; expected arrays in this one", path)
            yield before + name, item


Array = NDArray[np.floating[Any]]
Size = Annotated[int, Field(ge=1, le=1_000_000)]
Count = Annotated[int, Field(ge=0, le=100)]
CELL = "RNN_{direction}/RNN/MultiRNNCell/Cell{layer}/LSTMCell/"
GATES = (0, 2, 1, 3)
"""Where input, forget, candidate and output, the order of this package, stand there."""


class LSTMOptions(BaseModel):
    """`lstm` in options.json."""

    dim: Size
    projection_dim: Size
    n_layers: Annotated[int, Field(ge=1, le=100)]
    cell_clip: Annotated[float, Field(gt=0)] | None = None
    proj_clip: Annotated[float, Field(gt=0)] | None = None
    use_skip_connections: bool = False


class EmbeddingOptions(BaseModel):
    """`char_cnn.embedding` in options.json."""

    dim: Size


class CharacterOptions(BaseModel):
    """`char_cnn` in options.json."""

    embedding: EmbeddingOptions
    filters: Annotated[list[tuple[Size, Size]], Field(min_length=1)]
    n_highway: Count = 0
    max_characters_per_token: Annotated[int, Field(ge=3, le=10_000)] = 50
    activation: Literal["relu", "tanh"] = "relu"


class ElmoOptions(BaseModel):
    """The keys of options.json that say how the model is built; others are about its training."""

    lstm: LSTMOptions
    char_cnn: CharacterOptions


class Elmo(NamedTuple):
    """A model of this task: its recipe, its parts, and its weights by the names in the model that both build."""

    recipe: BidirectionalRecipe
    parts: BidirectionalParts
    weights: dict[str, Tensor]


def from_elmo(arrays: Mapping[str, Array], options: Any) -> Elmo:
    """The model of these arrays, by their paths in the hdf5 file, and of the values in options.json.

    Raises DataError for options that are none, and for arrays that are missing, of another shape, or not finite.
    """
    try:
        found = TypeAdapter(ElmoOptions).validate_python(options)
    except ValidationError as error:
        first = error.errors()[0]
        raise DataError(f"options of ELMo: {'.'.join(map(str, first['loc']))}: {first['msg'].lower()}") from None
    tokenizer = WordTokenizer([UNKNOWN, LINE_END])
    return Elmo(_recipe(found), BidirectionalParts(tokenizer), _Weights(arrays, found).all())


def _recipe(options: ElmoOptions) -> BidirectionalRecipe:
    lstm, characters = options.lstm, options.char_cnn
    clips = {"clip_cell": lstm.cell_clip, "clip_output": lstm.proj_clip}
    document = {
        "task": "bidirectional-language-modeling",
        "source": "Peters et al. 2018",
        "words": {
            "kind": "characters",
            "d_character": characters.embedding.dim,
            "filters": [list(pair) for pair in characters.filters],
            "num_highways": characters.n_highway,
            "activation": characters.activation,
            "longest": characters.max_characters_per_token,
        },
        "encoder": {
            "kind": "projected",
            "d_model": lstm.projection_dim,
            "d_cell": lstm.dim,
            "num_layers": lstm.n_layers,
            "residual": lstm.use_skip_connections,
            **{name: clip for name, clip in clips.items() if clip is not None},
        },
        "head": {"kind": "none"},
        "train": {"steps": 1},
    }
    recipe = validate_recipe(document, where="ELMo")
    assert isinstance(recipe, BidirectionalRecipe)
    return recipe


class _Weights:
    """The arrays as tensors of this package's names and layouts."""

    def __init__(self, arrays: Mapping[str, Array], options: ElmoOptions) -> None:
        self.arrays, self.lstm, self.characters = arrays, options.lstm, options.char_cnn

    def all(self) -> dict[str, Tensor]:
        found = self._of_characters()
        for direction, side in enumerate(("rightward", "leftward")):
            for layer in range(self.lstm.n_layers):
                inside = "layer." if layer and self.lstm.use_skip_connections else ""
                part = self._of_cell(direction, layer)
                found |= {f"{side}.layers.{layer}.{inside}{name}": values for name, values in part.items()}
        return {name: torch.from_numpy(np.ascontiguousarray(values, np.float32)) for name, values in found.items()}

    def _of_characters(self) -> dict[str, Array]:
        d, filters = self.characters.embedding.dim, self.characters.filters
        found = {"words.embedding.weight": self._array("char_embed", NUM_CHARACTERS, d)}
        for number, (width, count) in enumerate(filters):
            weights = self._array(f"CNN/W_cnn_{number}", 1, width, d, count)
            found[f"words.convolutions.{number}.weight"] = weights[0].transpose(2, 1, 0)
            found[f"words.convolutions.{number}.bias"] = self._array(f"CNN/b_cnn_{number}", count)
        size, d_out = sum(count for _, count in filters), self.lstm.projection_dim
        for number in range(self.characters.n_highway):
            for ours, theirs in (("transform", "transform"), ("gate", "carry")):
                name, path = f"words.highways.{number}.{ours}", f"CNN_high_{number}/{{}}_{theirs}"
                found[f"{name}.weight"] = self._array(path.format("W"), size, size).T
                found[f"{name}.bias"] = self._array(path.format("b"), size)
        if "CNN_proj/W_proj" in self.arrays or size != d_out:
            projection = self._array("CNN_proj/W_proj", size, d_out).T, self._array("CNN_proj/b_proj", d_out)
        else:  # the filters are as many already
            projection = np.eye(size), np.zeros(size)
        return {**found, "words.projection.weight": projection[0], "words.projection.bias": projection[1]}

    def _of_cell(self, direction: int, layer: int) -> dict[str, Array]:
        cells, d = self.lstm.dim, self.lstm.projection_dim
        path = CELL.format(direction=direction, layer=layer)
        stacked = self._gates(self._array(f"{path}W_0", 2 * d, 4 * cells).T)
        bias = self._gates(self._array(f"{path}B", 4 * cells)).copy()
        bias[cells : 2 * cells] += 1
        return {
            "weight_input": stacked[:, :d],
            "weight_hidden": stacked[:, d:],
            "bias": bias,
            "weight_projection": self._array(f"{path}W_P_0", cells, d).T,
        }

    def _gates(self, stacked: Array) -> Array:
        parts = np.split(stacked, 4)
        return np.concatenate([parts[place] for place in GATES])

    def _array(self, path: str, *shape: int) -> Array:
        if path not in self.arrays:
            raise DataError(f"no array {path}, which the options of ELMo ask for; expected one of {shape}")
        values = np.asarray(self.arrays[path])
        if values.shape != shape or not np.issubdtype(values.dtype, np.floating):
            raise DataError(f"{path}: expected numbers of {shape} by the options of ELMo, found {values.shape}")
        if not np.isfinite(values).all():
            raise DataError(f"{path}: not finite")
        return values
