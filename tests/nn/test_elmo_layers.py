"""ELMo's layers equal its equations in numpy: characters, highways, clipped LSTMs."""

from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from ensue.nn import Highway, HighwayCharacterCNN, ProjectedLSTM, Residual, Stack
from ensue.text.character_ngrams import (
    BOUNDARIES,
    NUM_CHARACTERS,
    PADDING,
    SENTENCE_BEGIN,
    WORD_BEGIN,
    WORD_END,
    word_characters,
)

FILTERS, MAX_CHARACTERS = [(1, 2), (3, 4), (5, 3)], 12
WORDS = ["a", "naïve", "", "internationalization", "\ud800b", "日本"]


def arrays(module: torch.nn.Module) -> dict[str, NDArray[Any]]:
    return {name: value.detach().numpy() for name, value in module.named_parameters()}


def sigmoid(x: NDArray[Any]) -> NDArray[Any]:
    return np.asarray(1 / (1 + np.exp(-x)))


def far(module: torch.nn.Module, scale: float = 0.7) -> torch.nn.Module:
    """Return the module in float64 with random weights far from their initialization."""
    generator = torch.Generator().manual_seed(1)
    module = module.double()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(scale * torch.randn(parameter.shape, generator=generator, dtype=torch.float64))
    return module


def spelled(word: str) -> list[int]:
    """Return the ids of a word in 12 positions."""
    ids = [WORD_BEGIN, *list(word.encode("utf-8", "ignore"))[: MAX_CHARACTERS - 2], WORD_END]
    return ids + [PADDING] * (MAX_CHARACTERS - len(ids))


def vector(weights: dict[str, NDArray[Any]], characters: list[int], activation: str) -> NDArray[Any]:
    """Return the vector of a word by Peters et al. 2018, with every window of all 12 positions."""
    x = weights["embedding.weight"][characters]
    responses = []
    for number, (width, _) in enumerate(FILTERS):
        w, b = weights[f"convolutions.{number}.weight"], weights[f"convolutions.{number}.bias"]
        windows = [
            np.einsum("okd,kd->o", w.transpose(0, 2, 1), x[t : t + width]) for t in range(MAX_CHARACTERS - width + 1)
        ]
        responses.append(np.max(windows, axis=0) + b)
    y = np.concatenate(responses)
    y = np.maximum(y, 0) if activation == "relu" else np.tanh(y)
    for number in range(2):
        part = f"highways.{number}."
        carry = sigmoid(weights[part + "gate.weight"] @ y + weights[part + "gate.bias"])
        changed = np.maximum(weights[part + "transform.weight"] @ y + weights[part + "transform.bias"], 0)
        y = carry * changed + (1 - carry) * y
    return np.asarray(weights["projection.weight"] @ y + weights["projection.bias"])


def encoder(activation: Any = "relu") -> HighwayCharacterCNN:
    return HighwayCharacterCNN(
        NUM_CHARACTERS,
        d_character=3,
        d_out=4,
        filters=FILTERS,
        activation=activation,
        longest=MAX_CHARACTERS,
        padding=PADDING,
    )


@pytest.mark.parametrize("activation", ["relu", "tanh"])
def test_vectors_of_words_equal_the_equations(activation: str) -> None:
    """One word is empty, one is cut, and one is not valid text."""
    model = far(encoder(activation))
    vectors = model(torch.from_numpy(word_characters(WORDS, max_length=MAX_CHARACTERS))).detach().numpy()
    expected = [vector(arrays(model), spelled(word), activation) for word in WORDS]
    np.testing.assert_allclose(vectors, expected, rtol=0, atol=1e-12)


def test_the_vector_of_a_word_does_not_depend_on_batch_and_padding() -> None:
    model = far(encoder())
    ids = torch.from_numpy(word_characters(WORDS, max_length=MAX_CHARACTERS))
    together = model(ids)
    for number, word in enumerate(WORDS):
        alone = torch.from_numpy(word_characters([word], max_length=MAX_CHARACTERS))
        for columns in {alone.shape[1], MAX_CHARACTERS}:
            padded = torch.nn.functional.pad(alone, (0, columns - alone.shape[1]), value=PADDING)
            torch.testing.assert_close(model(padded), together[number : number + 1])


def test_words_become_ids_of_bytes_and_boundaries() -> None:
    assert word_characters(["ab", "é"], max_length=50).tolist() == [[258, 97, 98, 259], [258, 0xC3, 0xA9, 259]]
    assert word_characters(["abcd", ""], max_length=5).tolist() == [[258, 97, 98, 99, 259], [258, 259, 260, 260, 260]]
    assert word_characters([], max_length=5).shape == (0, 2)
    assert BOUNDARIES[0].tolist() == [WORD_BEGIN, SENTENCE_BEGIN, WORD_END]


def test_invalid_filters_and_words_are_refused() -> None:
    def build(**options: Any) -> HighwayCharacterCNN:
        keys = {"d_character": 3, "d_out": 4, "filters": FILTERS, "longest": 4, "padding": 0} | options
        return HighwayCharacterCNN(9, **keys)

    with pytest.raises(ValueError, match="must not be wider than `longest` = 4"):
        build()
    for filters in ([], [(0, 3)], [(3, 0)]):
        with pytest.raises(ValueError, match="both at least 1"):
            build(filters=filters)
    with pytest.raises(ValueError, match="expects up to 5 characters, found 6"):
        build(longest=5)(torch.zeros(1, 6, dtype=torch.int64))
    with pytest.raises(ValueError, match="Highway expects x"):
        Highway(3)(torch.zeros(2, 4))
    for clip in (0.0, -1.0, float("nan")):
        with pytest.raises(ValueError, match="clip_cell must be above 0"):
            ProjectedLSTM(2, 2, d_cell=2, clip_cell=clip)


def stack(clip: float | None) -> Stack:
    def layer() -> ProjectedLSTM:
        return ProjectedLSTM(3, 3, d_cell=5, clip_cell=clip, clip_output=clip)

    return Stack([layer(), Residual(layer())])


def stepped(weights: dict[str, NDArray[Any]], x: NDArray[Any], state: Any, clip: float) -> tuple[NDArray[Any], Any]:
    """Compute one position of a clipped LSTM with projection."""
    h, c = state
    z = weights["weight_input"] @ x + weights["weight_hidden"] @ h + weights["bias"]
    i, f, g, o = np.split(z, 4)
    c = np.clip(sigmoid(f) * c + sigmoid(i) * np.tanh(g), -clip, clip)
    h = np.clip(weights["weight_projection"] @ (sigmoid(o) * np.tanh(c)), -clip, clip)
    return h, (h, c)


@pytest.mark.parametrize("clip", [0.3, np.inf])
def test_clipped_lstms_with_a_bypass_equal_the_equations(clip: float) -> None:
    """The state is carried from one sentence to the next."""
    layers = far(stack(clip if np.isfinite(clip) else None))
    x = torch.randn(1, 9, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    first, state = layers(x[:, :4])
    second, _ = layers(x[:, 4:], state)
    named = arrays(layers)
    parts = [
        {name.split(".")[-1]: value for name, value in named.items() if name.startswith(f"layers.{k}.")} for k in (0, 1)
    ]
    states = [(np.zeros(3), np.zeros(5))] * 2
    expected, clipped = [], 0
    for x_t in x[0].numpy():
        y, states[0] = stepped(parts[0], x_t, states[0], clip)
        h, states[1] = stepped(parts[1], y, states[1], clip)
        expected.append(y + h)
        clipped += sum(int(np.sum(np.abs(values) == clip)) for state in states for values in state)
    np.testing.assert_allclose(torch.cat((first, second), 1)[0].detach(), expected, rtol=0, atol=1e-12)
    assert (clipped > 10) == np.isfinite(clip)
