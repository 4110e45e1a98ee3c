"""The vectors of ELMo's two reference programs, from their weights. Skipped without ../shared/data or h5py."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ensue.extensions.bidirectional.elmo import from_elmo
from ensue.extensions.bidirectional.pipeline import BidirectionalPipeline

pytestmark = pytest.mark.slow
h5py = pytest.importorskip("h5py")


def imported(folder: Path) -> BidirectionalPipeline:
    arrays: dict[str, Any] = {}
    with h5py.File(folder / "lm_weights.hdf5") as file:
        file.visititems(lambda name, part: arrays.update({name: part[()]}) if isinstance(part, h5py.Dataset) else None)
    recipe, parts, weights = from_elmo(arrays, json.loads((folder / "options.json").read_text()))
    model = parts.build(recipe)
    model.load_state_dict(weights)
    return BidirectionalPipeline(model, parts.tokenizer, recipe)


@pytest.mark.parametrize(
    ("program", "sentences"), [("allennlp", "sentences.json"), ("bilm-tf", "lm_embeddings_sentences.json")]
)
def test_vectors_are_those_of_the_reference(program: str, sentences: str, shared_data: Path) -> None:
    """30 sentences, the top layer, state carried: to 5e-6."""
    folder = shared_data / "elmo_fixtures" / program
    elmo, compared = imported(folder), 0
    for column, texts in enumerate(json.loads((folder / sentences).read_text())):
        sentences_layers = elmo.layers_of_words([text.split() for text in texts], carry=True)
        with h5py.File(folder / f"lm_embeddings_{column}.hdf5") as file:
            for number, layers in enumerate(sentences_layers):
                expected = file[str(number)][()]  # (2 directions, T, 16)
                np.testing.assert_allclose(layers[-1], np.concatenate(list(expected), 1), rtol=0, atol=5e-6)
                compared += len(layers[-1])
    assert compared > 500


def test_vectors_of_words_are_those_of_the_reference(shared_data: Path) -> None:
    folder = shared_data / "elmo_fixtures" / "allennlp"
    words = (folder / "vocab_test.txt").read_text().split()
    with h5py.File(folder / "elmo_token_embeddings.hdf5") as file:
        expected = file["embedding"][()]
    elmo = imported(folder)
    vectors = np.stack([layers[0, 0, :16] for layers in elmo.layers_of_words([[word] for word in words])])
    is_word = np.array([word not in ("<S>", "</S>") for word in words])  # these two are the boundaries there
    assert is_word.sum() == len(expected) - 2
    np.testing.assert_allclose(vectors[is_word], expected[is_word], rtol=0, atol=5e-6)
