"""Word vectors from a model of sentences, which reads each word of a text by itself.

Sources: Tulkens & van Dongen 2024, "Model2Vec" (a sentence model's vectors of single words, their principal
components); Arora et al. 2017, "A Simple but Tough-to-Beat Baseline for Sentence Embeddings" (weights by frequency).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray

from ensue.data.corpus.cache import tokenize, trained_tokenizer
from ensue.errors import DataError, EnsueError, RecipeError
from ensue.library import load
from ensue.outputs import check_outputs
from ensue.recipe import Recipe, read_recipe
from ensue.runs.directory import RunDirectory
from ensue.runs.reporter import Reporter
from ensue.tasks.texts.corpus import training_source
from ensue.tasks.word_vectors.examples import LINE_END
from ensue.tasks.word_vectors.model import WordVectorParts
from ensue.tasks.word_vectors.recipe import DistilledVectorsTable, WordVectorsRecipe
from ensue.training.imported import Imported, write_run

WORDS, IDS = 4096, 1 << 20
"""Words that the teacher reads between two reports; ids that are counted at once."""


def static_student(
    teachers: Sequence[str], recipe: Recipe, out: Path, *, pool: str = "", gold: float = 0.5, temperature: float = 1.0,
    overwrite: bool = False, device: str = "auto", reporter: Reporter | None = None,
) -> None:  # fmt: skip
    """Makes the run `out` of word vectors: those that the teacher, a run with `embed`, gives to each word by itself.

    The words are those of one text, the recipe's or `pool`. Raises EnsueError for several teachers, for one without
    vectors of texts or with fewer numbers, for two texts or none, and for a recipe of vectors that are trained.
    """
    if not isinstance(recipe, WordVectorsRecipe) or not isinstance(table := recipe.vectors, DistilledVectorsTable):
        raise RecipeError(f'vectors of a teacher have vectors.kind = "distilled"; the recipe is of {recipe.describe()}')
    texts = [path for path in (recipe.data.train, pool) if path]
    if len(teachers) != 1 or len(texts) != 1:
        raise EnsueError("word vectors have one teacher, and the words of one text: --pool TEXTS")
    if (recipe.data.valid, recipe.data.test, gold, temperature) != ("", "", 0.5, 1.0):
        raise EnsueError("--valid, --test, --gold and --temperature are for students that have labels")
    (teacher,), (text,) = teachers, texts
    check_outputs([teacher, text], folders=[out], overwrite=overwrite, are_new=True)
    run, reporter = load(teacher, device=device), reporter or Reporter()
    if not hasattr(run, "embed"):
        raise EnsueError(f"{teacher}: this model has no vectors of texts, which `ensue embed` gives")
    source = training_source(recipe.data.model_copy(update={"train": text}))
    tokenizer: Any = trained_tokenizer(source, stop=None, **recipe.tokenizer.model_dump())
    size, ids = tokenizer.vocabulary_size, tokenize(source, tokenizer)
    words = [tokenizer.symbol(number) for number in range(LINE_END + 1, size)]
    if not words:
        raise DataError("has no word that occurs often enough (tokenizer.min_count)", text)
    counts = np.zeros(size, np.int64)
    for start in range(0, len(ids), IDS):
        counts += np.bincount(ids.read(start, min(start + IDS, len(ids))), minlength=size)
    found = []
    for start in range(0, len(words), WORDS):
        reporter.working(f"{teacher} reads {len(words):,} words", start / len(words))
        found.append(run.embed(words[start : start + WORDS]))
    vectors = np.concatenate(found)
    if table.d_words > vectors.shape[1]:
        raise EnsueError(f"vectors.d_words is {table.d_words}; those of {teacher} have {vectors.shape[1]} numbers")
    rows, share = principal_components(vectors, table.d_words)
    rows *= weights_by_frequency(counts[LINE_END + 1 :], table.smoothing)[:, None]
    own = torch.zeros(LINE_END + 1, table.d_words)
    directory, parts = RunDirectory(teacher), WordVectorParts(tokenizer)
    note = f"{table.d_words} principal components of {len(words):,} vectors of words have {share:.1%} of their variance"
    student = Imported(
        Path(teacher), (directory.weights,), f"a {directory.entry.what}", read_recipe(recipe, train=text), parts,
        {"vocabulary_size": size}, {"vectors": torch.cat([own, torch.from_numpy(rows.astype(np.float32))])}, [note],
    )  # fmt: skip
    reporter.noted(note)
    write_run(student, out, overwrite=overwrite)


def principal_components(vectors: Float[NDArray[np.float32], "V D"], d: int) -> tuple[NDArray[np.float64], float]:
    """Return the first d principal components (V, d) of vectors, and the share of the variance that they have."""
    centered = vectors.astype(np.float64)
    centered -= centered.mean(0)
    variances, directions = np.linalg.eigh(centered.T @ centered)
    kept = directions[:, : -d - 1 : -1]
    kept = kept * np.sign(kept[np.abs(kept).argmax(0), np.arange(d)])  # the largest is positive
    share = float(variances[-d:].sum() / max(variances.sum(), np.finfo(np.float64).tiny))
    return centered @ kept, share


def weights_by_frequency(counts: Int[NDArray[np.int64], " V"], smoothing: float) -> Float[NDArray[np.float64], " V"]:
    """a / (a + p) for each word, p being its share of the text and a the smoothing; 1 if that is 0."""
    shares = counts / max(1, counts.sum())
    return smoothing / (smoothing + shares) if smoothing else np.ones(len(counts))
