"""The first labels of a pool of texts, from a few examples of each label and the vectors of all texts.

Sources: Banerjee et al. 2005, "Clustering on the Unit Hypersphere using von Mises-Fisher Distributions" (soft
assignments, one concentration for all clusters); Basu et al. 2002, "Semi-supervised Clustering by Seeding" (examples
stay with their label).
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import NDArray

from ensue.errors import DataError, EnsueError, listed
from ensue.library import load
from ensue.recipe import Recipe
from ensue.tasks.classification.recipe import ClassificationRecipe
from ensue.tasks.classification.texts import document_source
from ensue.tasks.vectors.text_vectors import unit_vectors

CONCENTRATION, EXAMPLE, ROUNDS = 30.0, 5.0, 20
"""κ; how many texts of the pool an example counts; the rounds of expectation and maximization."""


def begun(
    vectors: str, recipe: Recipe, pool: str, *, count: int = 3000, seed: int = 0, device: str = "auto"
) -> Iterator[str]:
    """A line of a file of answers for each example, the training texts of the recipe, and for each of `count` texts of
    a pool that the seed draws.

    `vectors` is a run with `embed`. The name of a label with letters in it is an example, too. Raises EnsueError for a
    run without vectors of texts, and DataError for pairs, for several labels a text, and for examples of one label.
    """
    if not isinstance(recipe, ClassificationRecipe):
        raise EnsueError(f"examples are of a classifier of texts; the recipe is that of a {recipe.what}")
    examples = list(document_source(recipe.data, recipe.data.train))
    for document in examples:
        if len(document.labels) != 1 or len(document.texts) != 1:
            raise DataError("expected a text with one label", document.path, document.line)
    names = sorted({document.labels[0] for document in examples})
    if len(names) < 2:
        raise DataError(f"all examples have the label {listed(names)}; expected two labels or more", recipe.data.train)
    plain = recipe.data.model_copy(update={"format": "auto", "labels": ""})
    found = document_source(plain, pool, is_labeled=False)
    given = [(document.texts[0], document.labels[0]) for document in examples]
    known, read = {text for text, _ in given}, (document.texts[0] for document in found if not document.is_empty)
    texts = list(dict.fromkeys(text for text in read if text not in known))
    if not texts:
        raise DataError("has no text that is not an example", pool)
    if len(texts) > count:
        chosen = np.random.default_rng(seed).choice(len(texts), count, replace=False)
        texts = [texts[place] for place in sorted(chosen.tolist())]
    run = load(vectors, device=device)
    if not hasattr(run, "embed"):
        raise EnsueError(f"{vectors}: this model has no vectors of texts, which `ensue embed` gives")
    spoken = [*given, *((name, name) for name in names if any(map(str.isalpha, name)))]
    labels = np.array([names.index(name) for _, name in spoken])
    shares = shares_of(run.embed(texts), run.embed([text for text, _ in spoken]), labels)
    certain = np.eye(len(names))[labels[: len(given)]]
    for text, row in zip([*(text for text, _ in given), *texts], [*certain.tolist(), *shares.tolist()], strict=True):
        probabilities = {name: float(f"{share:.6g}") for name, share in zip(names, row, strict=True)}
        yield json.dumps({"text": text, "probabilities": probabilities}, ensure_ascii=False) + "\n"


def shares_of(
    pool: Float[NDArray[np.float32], "N d"], examples: Float[NDArray[np.float32], "E d"],
    labels: Int[NDArray[np.int64], " E"],
) -> Float[NDArray[np.float64], "N K"]:  # fmt: skip
    """The probability of each label for each text of the pool.

    With unit vectors u, and μ_k in the beginning the direction of the sum of the examples of label k, in each round

        p(k | n) = exp(κ u_n·μ_k) / Σ_j exp(κ u_n·μ_j)        μ_k ∝ Σ_n p(k | n) u_n + c Σ_{examples e of k} u_e

    with κ = 30 and c = 5. `labels` are numbers from 0 to K - 1, and each has an example.
    """
    units, seeds = (unit_vectors(vectors.astype(np.float64)) for vectors in (pool, examples))
    given = np.eye(int(labels.max()) + 1)[labels]
    of_examples = EXAMPLE * given.T @ seeds
    means = unit_vectors(of_examples)
    for _ in range(ROUNDS):
        shares = _shares(units, means)
        means = unit_vectors(shares.T @ units + of_examples)
    return _shares(units, means)


def _shares(units: NDArray[np.float64], means: NDArray[np.float64]) -> NDArray[np.float64]:
    logits = CONCENTRATION * units @ means.T
    powers = np.exp(logits - logits.max(1, keepdims=True))
    found: NDArray[np.float64] = powers / powers.sum(1, keepdims=True)
    return found
