"""Import of published ELMo models (Peters et al. 2018): an hdf5 file and its options.json, as of allenai/bilm-tf.

Matrices are stored (in, out). The matrix of an LSTM has rows for the input and the previous output, and columns for the
input gate, the candidate, the forget gate and the output gate. bilm-tf adds 1 to the stored bias of the forget gate.
"""

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
from ensue.text.tokenizer import LINE_END, UNKNOWN, WordTokenizer
from ensue.training.imported import Imported, read_json_file

SUFFIXES = (".hdf5", ".h5")
SIGNATURE = b"\x89HDF\r\n\x1a\n"
MAX_DEPTH = 16
MAX_BYTES = 1 << 32
"""The largest total size of all arrays. It is more than ten times the size of the largest published ELMo."""


def find_weights(path: Path) -> Path | None:
    """Return the hdf5 file `path`, or the only hdf5 file of weights with options in the directory `path`; or None."""
    if path.is_file():
        return path if path.suffix in SUFFIXES else None
    files = sorted(file for suffix in SUFFIXES for file in path.glob(f"*weights*{suffix}"))
    return files[0] if len(files) == 1 and find_options(files[0]) else None


def find_options(weights: Path) -> Path | None:
    """Return the file of options with the same name as the weights, or the only such file in their directory."""
    path = weights.with_name(weights.name.replace("weights", "options")).with_suffix(".json")
    files = [path] if path.exists() else sorted(weights.parent.glob("*options*.json"))
    return files[0] if len(files) == 1 else None


def import_elmo(path: Path) -> Imported | None:
    """Return a published ELMo; None for other files. Raises DataError for missing options and truncated files."""
    if (weights := find_weights(path)) is None:
        return None
    options = find_options(weights)
    if options is None:
        raise DataError("no options.json with the sizes of the model in the same folder", weights)
    recipe, parts, tensors = from_elmo(_read_arrays(weights), read_json_file(options))
    recipe = recipe.model_copy(update={"about": f"imported from {path.name}"})
    config = {"vocabulary_size": parts.vocabulary_size}
    return Imported(path, (weights, options), "ELMo", recipe, parts, config, tensors)


def _read_arrays(path: Path) -> dict[str, NDArray[np.floating[Any]]]:
    try:
        import h5py  # noqa: PLC0415 (an extra)
    except ImportError:
        raise EnsueError('reading hdf5 needs h5py: pip install "ensue[elmo]"') from None
    with path.open("rb") as file:
        if file.read(len(SIGNATURE)) != SIGNATURE:
            raise DataError("not an hdf5 file", path)
    try:
        with h5py.File(path, "r") as content:
            datasets = dict(_iterate_datasets(h5py, content, path))
            size = sum(int(np.prod(item.shape, dtype=object)) * item.dtype.itemsize for item in datasets.values())
            if size > min(MAX_BYTES, 4 * path.stat().st_size):  # data sets may be compressed, at most fourfold
                raise DataError(f"truncated or damaged: arrays of {size:,} bytes in {path.stat().st_size:,}", path)
            return {name: np.asarray(item[()]) for name, item in datasets.items()}
    except (OSError, RuntimeError, KeyError, ValueError, TypeError) as error:
        raise DataError(f"cannot be read: truncated, damaged or not hdf5 ({error})", path) from None


def _iterate_datasets(h5py: Any, group: Any, path: Path, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the data sets of a group and its subgroups with their paths; links are skipped."""
    if prefix.count("/") > MAX_DEPTH:
        raise DataError(f"groups nested more than {MAX_DEPTH} levels deep", path)
    for name in group:
        if group.get(name, getlink=True, getclass=True) is not h5py.HardLink:
            continue
        object_type = group.get(name, getclass=True)
        if object_type is h5py.Group:
            yield from _iterate_datasets(h5py, group[name], path, f"{prefix}{name}/")
        elif object_type is h5py.Dataset:
            item = group[name]
            if item.external or item.is_virtual:
                raise DataError(f"{prefix}{name}: stored in another file; expected an array in this file", path)
            yield prefix + name, item


Array = NDArray[np.floating[Any]]
Size = Annotated[int, Field(ge=1, le=1_000_000)]
Count = Annotated[int, Field(ge=0, le=100)]
CELL = "RNN_{direction}/RNN/MultiRNNCell/Cell{layer}/LSTMCell/"
GATES = (0, 2, 1, 3)
"""The indices of the input gate, forget gate, candidate and output gate in a published matrix."""


class LSTMOptions(BaseModel):
    """The table `lstm` of options.json."""

    dim: Size
    projection_dim: Size
    n_layers: Annotated[int, Field(ge=1, le=100)]
    cell_clip: Annotated[float, Field(gt=0)] | None = None
    proj_clip: Annotated[float, Field(gt=0)] | None = None
    use_skip_connections: bool = False


class EmbeddingOptions(BaseModel):
    """The table `char_cnn.embedding` of options.json."""

    dim: Size


class CharacterOptions(BaseModel):
    """The table `char_cnn` of options.json."""

    embedding: EmbeddingOptions
    filters: Annotated[list[tuple[Size, Size]], Field(min_length=1)]
    n_highway: Count = 0
    max_characters_per_token: Annotated[int, Field(ge=3, le=10_000)] = 50
    activation: Literal["relu", "tanh"] = "relu"


class ElmoOptions(BaseModel):
    """The keys of options.json that define the model."""

    lstm: LSTMOptions
    char_cnn: CharacterOptions


class Elmo(NamedTuple):
    """An imported model: recipe, vocabulary, and weights by the names of parameters."""

    recipe: BidirectionalRecipe
    parts: BidirectionalParts
    weights: dict[str, Tensor]


def from_elmo(arrays: Mapping[str, Array], options: Any) -> Elmo:
    """Convert the arrays of an hdf5 file, with their paths as keys, and the values of options.json.

    Raises DataError for invalid options, and for arrays that are missing, not finite, or of an unexpected shape.
    """
    try:
        valid = TypeAdapter(ElmoOptions).validate_python(options)
    except ValidationError as error:
        problem = error.errors()[0]
        raise DataError(f"options of ELMo: {'.'.join(map(str, problem['loc']))}: {problem['msg'].lower()}") from None
    parts = BidirectionalParts(WordTokenizer([UNKNOWN, LINE_END]))
    return Elmo(_convert_options(valid), parts, _WeightConverter(arrays, valid).convert())


def _convert_options(options: ElmoOptions) -> BidirectionalRecipe:
    lstm, characters = options.lstm, options.char_cnn
    clips = {"clip_cell": lstm.cell_clip, "clip_output": lstm.proj_clip}
    recipe_values = {
        "task": "bidirectional-language-modeling", "source": "Peters et al. 2018",
        "words": {
            "kind": "characters", "d_character": characters.embedding.dim,
            "filters": [list(pair) for pair in characters.filters], "num_highways": characters.n_highway,
            "activation": characters.activation, "longest": characters.max_characters_per_token,
        },
        "encoder": {
            "kind": "projected", "d_model": lstm.projection_dim, "d_cell": lstm.dim, "num_layers": lstm.n_layers,
            "residual": lstm.use_skip_connections,
            **{name: clip for name, clip in clips.items() if clip is not None},
        },
        "head": {"kind": "none"}, "train": {"steps": 1},
    }  # fmt: skip
    recipe = validate_recipe(recipe_values, where="ELMo")
    assert isinstance(recipe, BidirectionalRecipe)
    return recipe


class _WeightConverter:
    """A converter of published arrays to the names and layouts of this package's parameters."""

    def __init__(self, arrays: Mapping[str, Array], options: ElmoOptions) -> None:
        self.arrays, self.lstm, self.characters = arrays, options.lstm, options.char_cnn

    def convert(self) -> dict[str, Tensor]:
        weights = self._convert_characters()
        for number, direction in enumerate(("rightward", "leftward")):
            for layer in range(self.lstm.n_layers):
                prefix = "layer." if layer and self.lstm.use_skip_connections else ""  # the layer inside `Residual`
                cell = self._convert_cell(number, layer)
                weights |= {f"{direction}.layers.{layer}.{prefix}{name}": values for name, values in cell.items()}
        return {name: torch.from_numpy(np.ascontiguousarray(values, np.float32)) for name, values in weights.items()}

    def _convert_characters(self) -> dict[str, Array]:
        d, filters = self.characters.embedding.dim, self.characters.filters
        weights = {"words.embedding.weight": self._take_array("char_embed", NUM_CHARACTERS, d)}
        for number, (width, count) in enumerate(filters):
            kernel = self._take_array(f"CNN/W_cnn_{number}", 1, width, d, count)
            weights[f"words.convolutions.{number}.weight"] = kernel[0].transpose(2, 1, 0)
            weights[f"words.convolutions.{number}.bias"] = self._take_array(f"CNN/b_cnn_{number}", count)
        size, d_out = sum(count for _, count in filters), self.lstm.projection_dim
        for number in range(self.characters.n_highway):
            for parameter, published in (("transform", "transform"), ("gate", "carry")):
                name, path = f"words.highways.{number}.{parameter}", f"CNN_high_{number}/{{}}_{published}"
                weights[f"{name}.weight"] = self._take_array(path.format("W"), size, size).T
                weights[f"{name}.bias"] = self._take_array(path.format("b"), size)
        if "CNN_proj/W_proj" in self.arrays or size != d_out:
            projection = self._take_array("CNN_proj/W_proj", size, d_out).T, self._take_array("CNN_proj/b_proj", d_out)
        else:  # bilm-tf has no projection if the number of filters is d_out
            projection = np.eye(size), np.zeros(size)
        return {**weights, "words.projection.weight": projection[0], "words.projection.bias": projection[1]}

    def _convert_cell(self, direction: int, layer: int) -> dict[str, Array]:
        cells, d = self.lstm.dim, self.lstm.projection_dim
        path = CELL.format(direction=direction, layer=layer)
        weights = self._take_array(f"{path}W_0", 2 * d, 4 * cells).T, self._take_array(f"{path}B", 4 * cells)
        weight, bias = (np.concatenate([np.split(gates, 4)[index] for index in GATES]) for gates in weights)
        bias[cells : 2 * cells] += 1
        return {
            "weight_input": weight[:, :d], "weight_hidden": weight[:, d:], "bias": bias,
            "weight_projection": self._take_array(f"{path}W_P_0", cells, d).T,
        }  # fmt: skip

    def _take_array(self, path: str, *shape: int) -> Array:
        """Return a published array. Raises DataError if the array is missing, not finite, or of another shape."""
        if path not in self.arrays:
            raise DataError(f"no array {path}; the options of ELMo need it, with the shape {shape}")
        values = np.asarray(self.arrays[path])
        if values.shape != shape or not np.issubdtype(values.dtype, np.floating):
            raise DataError(f"{path}: expected floats of shape {shape}, found {values.dtype} of shape {values.shape}")
        if not np.isfinite(values).all():
            raise DataError(f"{path}: not finite")
        return values
