"""What taggers and classifiers read elsewhere: word forms as numbers, and where in the texts they stand."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ensue.models.subword_encoder import SubwordEncoder
from ensue.models.word_features import EncodedForms
from ensue.tasks.portable import TensorForm, no_export, sample_lengths
from ensue.tasks.words.pipeline import WordPipeline
from ensue.text.tokens import EXPRESSIONS

LONGEST = 5
"""The most letters of a word in a sample."""


def check_words(pipeline: WordPipeline) -> None:
    """Raises EnsueError for a model that reads more than words."""
    if isinstance(pipeline.model.layers, SubwordEncoder):
        raise no_export(pipeline.run, "the layers of another run (encoder.from)")
    if len(pipeline.model.features.contextual):
        raise no_export(pipeline.run, "what other runs compute (features.contextual)")


def form_inputs(pipeline: WordPipeline, *, keys: bool) -> dict[str, TensorForm]:
    """The inputs that describe the distinct words; those that the model does not use are left out."""
    features = pipeline.model.features
    used = {
        "words": ("words",) if features.words is not None else None,
        "characters": ("words", "letters") if features.characters is not None else None,
        "lengths_of_words": ("words",) if features.characters is not None else None,
        "affixes": ("words", 2 * pipeline.reader.lexicon.longest_affix) if features.affixes is not None else None,
        "shapes": ("words",) if features.shapes is not None else None,
        "vectors": ("words",) if features.vectors is not None else None,
        "keys": ("words",) if keys else None,
    }
    return {name: TensorForm(sizes, torch.int64) for name, sizes in used.items() if sizes is not None}


def text_inputs(pipeline: WordPipeline, suffix: str = "") -> dict[str, TensorForm]:
    """The inputs that say which word stands where, and how many there are in each text."""
    found = {
        f"numbers{suffix}": TensorForm(("batch", f"time{suffix}"), torch.int64),
        f"lengths{suffix}": TensorForm(("batch",), torch.int64),
    }
    columns = len(pipeline.model.features.columns)
    if columns:
        found["columns"] = TensorForm(("batch", "time", columns), torch.int64)
    return found


def forms_of(given: dict[str, Tensor]) -> EncodedForms:
    """The words of the inputs; zeros for what the model does not use."""
    first = next(iter(given[name] for name in ORDER if name in given))
    nothing = torch.zeros(first.shape[0], dtype=torch.int64, device=first.device)
    return EncodedForms(*(given.get(name, nothing) for name in ORDER))


ORDER = ("words", "characters", "lengths_of_words", "affixes", "shapes", "vectors", "keys")
"""The inputs in the order of `EncodedForms`."""


def sample_forms(pipeline: WordPipeline, *, keys: bool, count: int = 9) -> dict[str, Tensor]:
    """Some words of the vocabularies."""
    lexicon, inputs = pipeline.reader.lexicon, form_inputs(pipeline, keys=keys)
    vocabularies = {
        "words": lexicon.words, "characters": lexicon.characters, "affixes": lexicon.affixes, "shapes": lexicon.shapes,
        "vectors": lexicon.vectors, "keys": lexicon.words,
    }  # fmt: skip
    sizes = {"words": count, "letters": LONGEST}
    found = {}
    for name, form in inputs.items():
        shape = [sizes[size] if isinstance(size, str) else size for size in form.sizes]
        most = LONGEST + 1 if name == "lengths_of_words" else len(vocabularies[name] or ())
        found[name] = torch.randint(int(name == "lengths_of_words"), max(1, most), shape)
    return found


def sample_texts(
    pipeline: WordPipeline, batch: int, length: int, *, count: int = 9, suffix: str = ""
) -> dict[str, Tensor]:
    """Texts of up to `length` words, the first one of so many."""
    numbers = torch.randint(count, (batch, length))
    found = {f"numbers{suffix}": numbers, f"lengths{suffix}": sample_lengths(batch, length)}
    tables = list(pipeline.model.features.columns)
    if tables:
        found["columns"] = torch.stack(
            [torch.randint(table.vocabulary_size, (batch, length)) for table in tables], dim=-1
        )
    return found


def word_settings(pipeline: WordPipeline) -> dict[str, Any]:
    """What the program needs to turn texts into numbers."""
    expression, ignores_case = EXPRESSIONS[pipeline.splitter]
    return {"lexicon": pipeline.reader.lexicon.to_json(), "splitter": expression, "ignore_case": ignores_case}
