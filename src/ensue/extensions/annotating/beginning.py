"""Label propagation from a few examples to a pool of texts, by the similarity of text vectors.

Sources: Banerjee et al. 2005, "Clustering on the Unit Hypersphere using von Mises-Fisher Distributions" (soft
assignments, one concentration for all clusters); Basu et al. 2002, "Semi-supervised Clustering by Seeding" (the labels
of the examples are fixed).
"""

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import NDArray

from ensue.errors import DataError, EnsueError, list_names
from ensue.library import load
from ensue.nn.heads.single_chain import softmax
from ensue.recipe import Recipe
from ensue.tasks.classification.model import document_source
from ensue.tasks.classification.recipe import ClassificationRecipe
from ensue.tasks.vectors.contextual import unit_vectors

CONCENTRATION, EXAMPLE_WEIGHT, NUM_ROUNDS = 30.0, 5.0, 20
"""The concentration κ, the weight c of an example, and the number of rounds of expectation and maximization."""


def propagate_labels(
    encoder: str, recipe: Recipe, pool: str, *, count: int = 3000, seed: int = 0, device: str = "auto"
) -> Iterator[str]:
    """Yield JSON lines with label probabilities: the labeled examples, then at most `count` random texts of the pool.

    The examples are the training texts of the recipe. The names of labels, if they have a letter, are further examples,
    but have no lines. `encoder` is a run directory whose pipeline has `embed`.
    """
    if not isinstance(recipe, ClassificationRecipe):
        raise EnsueError(f"found the recipe of a {recipe.what}; expected the recipe of a text classifier")
    examples = list(document_source(recipe.data, recipe.data.train))
    for document in examples:
        if len(document.labels) != 1 or len(document.texts) != 1:
            raise DataError("expected a text with one label", document.path, document.line)
    names = sorted({document.labels[0] for document in examples})
    if len(names) < 2:
        raise DataError(f"all examples have the label {list_names(names)}; expected at least two", recipe.data.train)
    pool_data = recipe.data.model_copy(update={"format": "auto", "labels": ""})
    documents = document_source(pool_data, pool, is_labeled=False)
    labeled = [(document.texts[0], document.labels[0]) for document in examples]
    example_texts = {text for text, _ in labeled}
    pool_texts = (document.texts[0] for document in documents if not document.is_empty)
    texts = list(dict.fromkeys(text for text in pool_texts if text not in example_texts))
    if not texts:
        raise DataError("all texts of the pool are empty or examples", pool)
    if len(texts) > count:
        drawn_rows = np.random.default_rng(seed).choice(len(texts), count, replace=False)
        texts = [texts[row] for row in sorted(drawn_rows.tolist())]
    pipeline = load(encoder, device=device)
    if not hasattr(pipeline, "embed"):
        raise EnsueError(f"{encoder}: this model has no text embeddings (`ensue embed`)")
    seeds = [*labeled, *((name, name) for name in names if any(map(str.isalpha, name)))]
    labels = np.array([names.index(name) for _, name in seeds])
    pool_probabilities = label_probabilities(pipeline.embed(texts), pipeline.embed([text for text, _ in seeds]), labels)
    rows = [*np.eye(len(names))[labels[: len(labeled)]].tolist(), *pool_probabilities.tolist()]
    for text, row in zip([*(text for text, _ in labeled), *texts], rows, strict=True):
        probabilities = {name: float(f"{p:.6g}") for name, p in zip(names, row, strict=True)}
        yield json.dumps({"text": text, "probabilities": probabilities}, ensure_ascii=False) + "\n"


def label_probabilities(
    pool: Float[NDArray[np.float32], "N d"],
    examples: Float[NDArray[np.float32], "E d"],
    labels: Int[NDArray[np.int64], " E"],
) -> Float[NDArray[np.floating[Any]], "N K"]:
    """Return the probability of each label for each text of the pool.

    With unit vectors u, and at first μ_k ∝ Σ_{examples e of k} u_e, each round computes

        p(k | n) = exp(κ u_n·μ_k) / Σ_j exp(κ u_n·μ_j)        μ_k ∝ Σ_n p(k | n) u_n + c Σ_{examples e of k} u_e

    with κ = 30 and c = 5.

    Args:
        pool: The vectors of the texts.
        examples: The vectors of the examples.
        labels: The label of each example, from 0 to K - 1; each label has an example.
    """
    texts, seeds = (unit_vectors(vectors.astype(np.float64)) for vectors in (pool, examples))
    weighted_seeds = EXAMPLE_WEIGHT * np.eye(int(labels.max()) + 1)[labels].T @ seeds
    means = unit_vectors(weighted_seeds)
    for _ in range(NUM_ROUNDS):
        means = unit_vectors(softmax(CONCENTRATION * texts @ means.T).T @ texts + weighted_seeds)
    return softmax(CONCENTRATION * texts @ means.T)
