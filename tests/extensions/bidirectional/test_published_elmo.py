"""Arrays in the format of ELMo as a model of ensue, against the equations; invalid arrays are refused."""

from typing import Any

import numpy as np
import pytest

from ensue.errors import DataError, EnsueError
from ensue.extensions.bidirectional.elmo import from_elmo
from ensue.extensions.bidirectional.layers import BidirectionalLanguageModel
from ensue.extensions.bidirectional.pipeline import BidirectionalPipeline

OPTIONS: dict[str, Any] = {
    "lstm": {
        "dim": 5, "projection_dim": 4, "n_layers": 2, "cell_clip": 3, "proj_clip": 3, "use_skip_connections": True,
    },
    "char_cnn": {"embedding": {"dim": 3}, "filters": [[1, 2], [2, 3]], "n_highway": 1, "max_characters_per_token": 50},
}  # fmt: skip


def published() -> dict[str, np.ndarray[Any, Any]]:
    """Random arrays with the names and shapes of a file of ELMo."""
    shapes = {
        "char_embed": (261, 3), "CNN/W_cnn_0": (1, 1, 3, 2), "CNN/b_cnn_0": (2,), "CNN/W_cnn_1": (1, 2, 3, 3),
        "CNN/b_cnn_1": (3,), "CNN_high_0/W_carry": (5, 5), "CNN_high_0/b_carry": (5,), "CNN_high_0/W_transform": (5, 5),
        "CNN_high_0/b_transform": (5,), "CNN_proj/W_proj": (5, 4), "CNN_proj/b_proj": (4,),
    }  # fmt: skip
    for direction in (0, 1):
        for layer in (0, 1):
            cell = f"RNN_{direction}/RNN/MultiRNNCell/Cell{layer}/LSTMCell/"
            shapes |= {cell + "W_0": (8, 20), cell + "B": (20,), cell + "W_P_0": (5, 4)}
    random = np.random.default_rng(0)
    return {name: random.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}


def test_an_imported_elmo_computes_its_equations() -> None:
    """The layers of one word, computed from the arrays."""
    arrays = published()
    recipe, parts, weights = from_elmo(arrays, OPTIONS)
    model = parts.build(recipe)
    model.load_state_dict(weights)
    pipeline = BidirectionalPipeline(model, parts.tokenizer, recipe)
    assert isinstance(model, BidirectionalLanguageModel)

    def sigmoid(x: Any) -> Any:
        return 1 / (1 + np.exp(-x))

    def vector(characters: list[int]) -> Any:
        x, responses = arrays["char_embed"][characters + [260] * (50 - len(characters))], []
        for k, width in enumerate((1, 2)):
            w = arrays[f"CNN/W_cnn_{k}"][0]
            products = [np.einsum("kd,kdn->n", x[t : t + width], w) for t in range(50 - width + 1)]
            responses.append(np.max(products, 0) + arrays[f"CNN/b_cnn_{k}"])
        y = np.maximum(np.concatenate(responses), 0)
        carry = sigmoid(y @ arrays["CNN_high_0/W_carry"] + arrays["CNN_high_0/b_carry"])
        y = (
            carry * np.maximum(y @ arrays["CNN_high_0/W_transform"] + arrays["CNN_high_0/b_transform"], 0)
            + (1 - carry) * y
        )
        return y @ arrays["CNN_proj/W_proj"] + arrays["CNN_proj/b_proj"]

    def lstm(direction: int, layer: int, inputs: list[Any]) -> list[Any]:
        cell = f"RNN_{direction}/RNN/MultiRNNCell/Cell{layer}/LSTMCell/"
        h, c, outputs = np.zeros(4), np.zeros(5), []
        for x in inputs:
            i, j, f, o = np.split(np.concatenate((x, h)) @ arrays[cell + "W_0"] + arrays[cell + "B"], 4)
            c = np.clip(sigmoid(f + 1) * c + sigmoid(i) * np.tanh(j), -3, 3)
            h = np.clip((sigmoid(o) * np.tanh(c)) @ arrays[cell + "W_P_0"], -3, 3)
            outputs.append(h)
        return outputs

    word = vector([258, 0x68, 0x69, 259])
    expected = [np.concatenate((word, word))]
    inputs_of_directions = [[vector([258, mark, 259]), word] for mark in (256, 257)]
    firsts = [lstm(direction, 0, inputs) for direction, inputs in enumerate(inputs_of_directions)]
    seconds = [lstm(direction, 1, inputs) for direction, inputs in enumerate(firsts)]
    expected.append(np.concatenate([first[-1] for first in firsts]))
    expected.append(np.concatenate([first[-1] + second[-1] for first, second in zip(firsts, seconds, strict=True)]))
    np.testing.assert_allclose(pipeline.layers_of_words([["hi"]])[0][:, 0], expected, atol=2e-6)
    with pytest.raises(EnsueError, match='the head of this model is "none"'):
        pipeline.score("hi")
    with pytest.raises(EnsueError, match="no vocabulary"):
        pipeline.neighbors("hi")


@pytest.mark.parametrize(
    ("options", "arrays", "message"),
    [
        ({"lstm": {}}, {}, r"options of ELMo: lstm\.dim: field required"),
        ([], {}, "options of ELMo"),
        ({}, {"char_embed": None}, "no array char_embed"),
        ({}, {"CNN/b_cnn_1": np.zeros(4, np.float32)}, r"CNN/b_cnn_1: expected floats of shape \(3,\), found .*\(4,\)"),
        ({}, {"CNN/b_cnn_1": np.full(3, np.nan)}, "not finite"),
        ({}, {"CNN/b_cnn_1": np.zeros(3, np.int32)}, "expected floats"),
    ],
)
def test_invalid_options_and_arrays_are_refused(options: Any, arrays: dict[str, Any], message: str) -> None:
    changed = {name: value for name, value in (published() | arrays).items() if value is not None}
    with pytest.raises(DataError, match=message):
        from_elmo(changed, OPTIONS | options if isinstance(options, dict) else options)
