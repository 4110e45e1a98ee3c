"""Distill the word vectors of `ensue-en-vectors` from a sentence model.

    python models/en-vectors/distill.py MINILM DATA OUT

MINILM is a run of all-MiniLM-L6-v2 (`ensue import`), DATA the folder of the texts, OUT the run of word vectors. The
vector of a text is the mean of the vectors of its words. A word's vector begins as in Model2Vec: MiniLM's vector of the
word by itself, projected on principal components, times a / (a + p) for a word with the share p of the texts. Then the
vectors are fitted to MiniLM's vectors of `NUM_SENTENCES` sentences by a ridge regression: the sum of squared errors
plus `RIDGE` times the squared distance from the initial vectors is minimal. MiniLM's vectors are stored in OUT.npz and
read from there if it exists.

References:
    Tulkens & van Dongen 2024, Model2Vec; Arora et al. 2017, the weights; Hestenes & Stiefel 1952, conjugate gradients.
"""

from __future__ import annotations

import argparse
import lzma
import random
import re
import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

import ensue
from ensue.extensions.word_vectors.model import WordVectorParts
from ensue.runs.directory import RunDirectory
from ensue.text.tokenizer import LINE_END, UNKNOWN, WordTokenizer
from ensue.text.tokens import words_in
from ensue.training.imported import Imported, recipe_of, write_run

D_WORDS, SMOOTHING, RIDGE, STEPS = 192, 1e-3, 0.1, 25
NUM_SENTENCES, NUM_HELD_OUT = 81_920, 2_000
NUM_FREQUENT, MIN_COUNT = 20_000, 4
"""Words with a vector: the most frequent of GloVe's list, MiniLM's whole words, and words that occur so often."""
SENTENCE_END = re.compile(r"(?<=[.!?])[\"')\]]*\s+(?=[\"'(\[]*[A-Z])")


def opened(path: Path) -> Any:
    """Return an open text file, which may be compressed."""
    return (lzma.open if path.suffix == ".xz" else open)(path, "rt", encoding="utf-8", errors="replace")


def wikitext(data: Path) -> Iterator[str]:
    """Yield the sentences of WikiText-2 with at most one unknown word."""
    for line in opened(data / "wikitext-2/train.txt.xz"):
        if (text := line.strip()) and not text.startswith("="):
            text = text.replace(" @-@ ", "-").replace(" @,@ ", ",").replace(" @.@ ", ".")
            for sentence in re.split(r"(?<= [.!?]) ", text):
                if sentence.count(UNKNOWN) <= 1:
                    yield sentence


def books(data: Path) -> Iterator[str]:
    """Yield the sentences of the books of Project Gutenberg."""
    for path in sorted(data.glob("gutenberg/*.txt*")):
        with opened(path) as file:
            for paragraph in re.split(r"\n\s*\n", file.read()):
                yield from SENTENCE_END.split(" ".join(paragraph.split()))


def treebank(data: Path) -> Iterator[str]:
    """Yield the training sentences of UD English-EWT."""
    for line in opened(data / "ud_english_ewt/en_ewt-ud-train.conllu.xz"):
        if line.startswith("# text = "):
            yield line[9:].strip()


def spoken(data: Path) -> Iterator[str]:
    """Yield the English sentences of the small corpus of English and Japanese."""
    for line in opened(data / "small_parallel_enja/train.en.xz"):
        yield re.sub(r" (['.,?!])", r"\1", line.strip())


def sentences(data: Path) -> list[str]:
    """Return distinct sentences of at most 60 words in random order."""

    def chosen(source: Iterator[str], count: int | None = None, *, shortest: int = 3) -> list[str]:
        texts = [text for text in source if shortest <= len(text.split()) <= 60]
        if count is not None:
            random.Random(0).shuffle(texts)
        return [text.replace(f"{UNKNOWN} ", "").replace(UNKNOWN, "") for text in texts[:count]]

    texts = [*chosen(wikitext(data)), *chosen(books(data), 25_000), *chosen(treebank(data))]
    texts += chosen(spoken(data), 30_000, shortest=1)
    texts = list(dict.fromkeys(texts))
    random.Random(1).shuffle(texts)
    return texts


def vocabulary(data: Path, pieces: Sequence[str], counts: Counter[str]) -> list[str]:
    """Return the words that get a vector."""
    with opened(data / "static_vectors/glove.6B.100d.cut.txt.xz") as file:
        frequent = [line.partition(" ")[0] for line, _ in zip(file, range(NUM_FREQUENT), strict=False)]
    whole = [piece for piece in pieces if piece.isascii() and not piece.startswith(("##", "["))]
    words = dict.fromkeys([*frequent, *whole, *(word for word, count in counts.items() if count >= MIN_COUNT)])
    known = {*whole}
    is_number = re.compile(r"\d")
    candidates = [word for word in words if word.split() == [word] and (word in known or not is_number.search(word))]
    return [word for word in candidates if unicodedata.normalize("NFC", word) == word]


def embedded(minilm: str, words: list[str], texts: list[str], file: Path) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return MiniLM's vectors of words and of texts, from a file if it has them."""
    if not file.exists():
        model = ensue.load(minilm)
        of_words = model.embed(words)
        of_texts = [
            model.embed(texts[start : start + 4_096]).astype(np.float16) for start in range(0, len(texts), 4_096)
        ]
        np.savez(file, words=of_words, texts=np.concatenate(of_texts))
    stored = np.load(file)
    return stored["words"].astype(np.float32), stored["texts"].astype(np.float32)


def means(ids: Sequence[Sequence[int]], size: int) -> Tensor:
    """Return the sparse matrix (N, V) by which the means of the vectors of texts are computed."""
    rows = torch.tensor([row for row, text in enumerate(ids) for _ in text])
    values = torch.tensor([1 / len(text) for text in ids for _ in text])
    columns = torch.tensor([word for text in ids for word in text])
    return torch.sparse_coo_tensor(torch.stack([rows, columns]), values, (len(ids), size)).coalesce().to_sparse_csr()


def fit(x: Tensor, targets: Tensor, initial: Tensor) -> Tensor:
    """Return the vectors V with the least ‖x V - targets‖² + RIDGE ‖V - initial‖², by conjugate gradients."""
    transposed = x.t().to_sparse_csr()
    change = torch.zeros_like(initial)
    residual = transposed @ (targets - x @ initial)
    direction, norm = residual.clone(), residual.square().sum(0)
    for _ in range(STEPS):
        product = transposed @ (x @ direction) + RIDGE * direction
        step = norm / (direction * product).sum(0).clamp(min=1e-12)
        change += step * direction
        residual -= step * product
        norm, previous = residual.square().sum(0), norm
        direction = residual + norm / previous.clamp(min=1e-12) * direction
    return initial + change


def main() -> None:
    """Write the run."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("minilm")
    parser.add_argument("data", type=Path)
    parser.add_argument("out", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    texts = sentences(options.data)
    counts = Counter(word.lower() for text in texts for word in words_in(text, "simple"))
    pieces = RunDirectory(options.minilm).parts.tokenizer.vocabulary.symbols
    words, texts = vocabulary(options.data, pieces, counts), texts[:NUM_SENTENCES]
    of_words, of_texts = map(torch.from_numpy, embedded(options.minilm, words, texts, options.out.with_suffix(".npz")))
    number = {word: row for row, word in enumerate(words)}
    ids = [[number[word] for word in map(str.lower, words_in(text, "simple")) if word in number] for text in texts]
    x, centered = means(ids, len(words)), of_texts - of_texts.mean(0)
    axes = torch.linalg.eigh(centered.t() @ centered).eigenvectors.flip(1)[:, :D_WORDS]
    axes = axes * axes.gather(0, axes.abs().argmax(0, keepdim=True)).sign()
    share = torch.tensor([counts[word] for word in words]) / counts.total()
    initial = (of_words - of_words.mean(0)) @ axes * (SMOOTHING / (SMOOTHING + share)).unsqueeze(1)
    targets, before = centered @ axes, x @ initial
    vectors = initial = initial * (before * targets).sum() / before.square().sum()
    for rows in (slice(NUM_HELD_OUT, None), slice(None)):  # the first time to measure it on sentences held out
        vectors = fit(means(ids[rows], len(words)), targets[rows], initial)
        cosines = [torch.cosine_similarity(x @ v, targets)[:NUM_HELD_OUT].mean() for v in (initial, vectors)]
        print(f"{len(ids[rows]):,} sentences: cosine with the vectors of {NUM_HELD_OUT:,}: {cosines}")
    recipe = {
        "task": "word-vectors", "tokenizer": {"kind": "words", "splitter": "simple", "lowercase": True},
        "vectors": {"kind": "static", "d_words": D_WORDS, "unit_length": True},
    }  # fmt: skip
    tokenizer = WordTokenizer([UNKNOWN, LINE_END, *words], splitter="simple", lowercase=True)
    rows_of_run = torch.cat([torch.zeros(2, D_WORDS), vectors])
    weights, run = Path(options.minilm, "model.safetensors"), Path(options.minilm)
    parts, size = WordVectorParts(tokenizer), {"vocabulary_size": 2 + len(words)}
    write_run(
        Imported(run, (weights,), "a sentence model", recipe_of(recipe, run), parts, size, {"vectors": rows_of_run}),
        options.out, overwrite=True,
    )  # fmt: skip


if __name__ == "__main__":
    main()
