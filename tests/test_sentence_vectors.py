"""Sentence vectors: the loss equals its formula, batches, a run from training to use, and searches over vectors."""

from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch

import ensue
from ensue.data.examples import Pair
from ensue.errors import EnsueError
from ensue.nn.draws import RowSlice
from ensue.ranks import ProcessGroup, use_process_group
from ensue.tasks.masked_language_modeling.pipeline import SentenceVectorsPipeline
from ensue.tasks.masked_language_modeling.task import (
    EncodedTextPairs,
    SentenceVectors,
    contrastive_nats,
    excluded_candidates,
)
from ensue.tasks.vectors.contextual import highest_cosines, near_duplicates
from ensue.text.masked_tokens import MaskedTokenizer
from ensue.text.tokenizers import train_tokenizer
from training.tiny import run_tiny, small_recipe
from training.tiny_masked import ENCODER, TRAIN
from written_files import write_file

LINES = [
    "a red cat\ta crimson cat", "the blue sea\tthe azure sea", "one dog\ta single dog", "green hills\thills of green",
]  # fmt: skip


def recipe_for(path: Path, **tables: Any) -> Any:
    return small_recipe("sentence-vectors", path, tables, tokenizer={"max_size": 200}, encoder=ENCODER, **TRAIN)


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_file(tmp_path_factory.mktemp("pairs") / "pairs.tsv", "\n".join(LINES * 3) + "\n", encoding="utf-8")


def test_loss_and_gradient_equal_those_of_the_formula() -> None:
    generator = torch.Generator().manual_seed(3)
    firsts, candidates = (torch.randn(n, 5, generator=generator, dtype=torch.float64) for n in (3, 5))
    excluded = np.zeros((3, 5), bool)
    excluded[0, 2] = excluded[1, 4] = True

    def nats(a: np.ndarray, c: np.ndarray) -> float:
        a, c = (part / np.linalg.norm(part, axis=1, keepdims=True) for part in (a, c))
        total = 0.0
        for row in range(3):
            shares = {n: np.exp(a[row] @ c[n] / 0.3) for n in range(5) if not excluded[row, n]}
            total -= np.log(shares[row] / sum(shares.values()))
        return float(total)

    firsts.requires_grad_()
    loss = contrastive_nats(firsts, candidates, torch.from_numpy(excluded), 0.3)
    a, c = firsts.detach().numpy(), candidates.numpy()
    assert loss.item() == pytest.approx(nats(a, c), rel=1e-5)
    loss.backward()  # type: ignore[no-untyped-call]
    assert firsts.grad is not None
    for row in range(3):
        step = np.zeros((3, 5))
        step[row, 1] = 1e-5
        slope = (nats(a + step, c) - nats(a - step, c)) / 2e-5
        assert firsts.grad[row, 1].item() == pytest.approx(slope, rel=1e-3, abs=1e-5)


def test_equal_and_similar_texts_are_excluded_as_negatives() -> None:
    firsts, alike, candidates = np.array([7, 7, 8, 9]), np.array([1, 2, 1, 3]), np.array([1, 2, 1, 3, 7, 2, 6])
    similar = {(7, 1), (7, 2), (8, 1), (9, 3)}
    expected = [
        [
            (first, text) in similar or first == text if row != column else False
            for column, text in enumerate(candidates)
        ]
        for row, first in enumerate(firsts.tolist())
    ]
    assert excluded_candidates(firsts, alike, candidates).tolist() == expected


def test_a_batch_has_the_texts_of_its_pairs_and_cannot_be_split(pairs: Path) -> None:
    coder = MaskedTokenizer(train_tokenizer("wordpiece", [line + "\n" for line in LINES], max_size=200))
    triples = [Pair(("a red cat",), ("a crimson cat", "one dog")), Pair(("one dog",), ("a single dog",))]
    encoded = EncodedTextPairs(triples, coder, 18)
    batch = encoded.batch(np.array([1, 0]), torch.device("cpu"))
    texts = ["one dog", "a red cat", "a single dog", "a crimson cat", "one dog"]
    expected = [coder.add_frame(coder.encode(text)).tolist() for text in texts]
    assert batch.mask is not None
    assert [row[real].tolist() for row, real in zip(batch.ids, batch.mask, strict=True)] == expected
    assert batch.excluded.tolist() == [[False, False, True], [False, False, False]]
    task = SentenceVectors(encoded, recipe_for(pairs), judged_by="accuracy")
    with pytest.raises(EnsueError, match=r"expected a smaller train\.batch_size"):
        task.batch_of(np.array([0, 1]), torch.device("cpu"), RowSlice(total=1))
    group = ProcessGroup()
    group.size = 2
    with use_process_group(group), pytest.raises(EnsueError, match="expected one process"):
        SentenceVectors(encoded, recipe_for(pairs), judged_by="accuracy")


@pytest.mark.slow
def test_a_model_learns_from_pairs_and_is_trained_further(pairs: Path, tmp_path: Path) -> None:
    judged = tmp_path / "judged.tsv"
    judged.write_text("a red cat\ta crimson cat\t5\none dog\ta single dog\t5\na red cat\tthe azure sea\t0\n")
    data = {"valid": str(judged), "test": str(judged)}
    run_tiny(recipe_for(pairs, data=data, train={"steps": 30, "batch_size": 4}), tmp_path / "run")
    model = ensue.load(tmp_path / "run", kind=SentenceVectorsPipeline)
    assert model.evaluate(judged).spearman > 0.8
    again = recipe_for(pairs, encoder=ENCODER | {"from": str(tmp_path / "run")}, train={"steps": 1})
    run_tiny(again, tmp_path / "more")  # without judged pairs some pairs are held out
    assert "accuracy" in (tmp_path / "more" / "README.md").read_text()


def test_invalid_settings_and_pairs_are_errors_of_one_line(pairs: Path, tmp_path: Path) -> None:
    for tables in ({"train": {"accumulate": 2}}, {"train": {"deterministic": True}}, {"head": {"masked": True}}):
        with pytest.raises(EnsueError, match=r"which split batches|learns only vectors"):
            recipe_for(pairs, **tables)
    path = write_file(tmp_path / "triples.tsv", "a\tb\tc\nd\t\tf\n")
    with pytest.raises(EnsueError, match=r"triples.tsv:2: an empty text; expected one in each of column 2, column 3"):
        run_tiny(recipe_for(path, data={"targets": ["2", "3"]}), tmp_path / "run")
    path = write_file(tmp_path / "lists.jsonl", '{"a": "x", "b": ["y", "z"]}\n{"a": "x", "b": [" ", "not alike"]}\n')
    with pytest.raises(EnsueError, match=r'lists.jsonl:2: an empty text; expected one in each of "b"'):
        run_tiny(recipe_for(path, data={"sources": ["a"], "targets": ["b"]}), tmp_path / "run")


@pytest.mark.parametrize("kind", [np.float32, np.float16])
def test_searches_equal_those_of_the_full_matrix_of_cosines(kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ensue.tasks.vectors.contextual.SEARCH_BLOCK_VECTORS", 7)
    monkeypatch.setattr("ensue.tasks.vectors.contextual.PAIR_BLOCK_VECTORS", 4)
    generator = np.random.default_rng(1)
    vectors = generator.standard_normal((23, 6)).astype(kind)
    vectors[[5, 11, 20]], vectors[3] = vectors[0], 0
    queries = np.stack([vectors[0], *generator.standard_normal((2, 6))]).astype(np.float32)
    norms = [np.maximum(np.linalg.norm(part.astype(float), axis=1), 1e-30) for part in (queries, vectors)]
    cosines = queries.astype(float) @ vectors.astype(float).T / norms[0][:, None] / norms[1]
    for count in (1, 3, 9, 40):
        highest, rows = highest_cosines(vectors, queries, count)
        expected = np.argsort(-cosines.round(6), axis=1, kind="stable")[:, :count]
        assert rows.tolist() == expected.tolist()
        np.testing.assert_allclose(highest, np.take_along_axis(cosines, expected, 1), atol=1e-5)
    units = vectors.astype(float) / norms[1][:, None]
    others = [a for a in range(23) if a not in (5, 11, 20)]
    every = {(a, b) for a in others for b in others if a < b and units[a] @ units[b] >= 0.6}
    same = {(0, 5), (0, 11), (0, 20)}
    assert {(a, b) for a, b, _ in near_duplicates(vectors, 0.6)} == every | same
    assert {(a, b) for a, b, _ in near_duplicates(vectors, 1.0)} == same
    vectors[18, 2] = np.nan
    for search in (lambda: highest_cosines(vectors, queries, 1), lambda: list(near_duplicates(vectors, 0.5))):
        with pytest.raises(EnsueError, match="vector 19 is not finite"):
            search()
    with pytest.raises(EnsueError, match="vector 1 is not finite"):
        highest_cosines(queries, vectors[18:19].astype(np.float32), 1)


def test_equal_texts_are_pairs_with_the_first_and_too_many_pairs_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """All 7,998,000 pairs of 4,000 equal vectors would take gigabytes."""
    equal = list(near_duplicates(np.ones((4000, 8), np.float32), 0.9))
    assert [pair[:2] for pair in equal] == [(0, row) for row in range(1, 4000)]
    similar = np.eye(9, dtype=np.float32) + 100
    monkeypatch.setattr("ensue.tasks.vectors.contextual.MAX_PAIRS", 35)
    with pytest.raises(EnsueError, match=r"more than 35 pairs are similar; expected a higher threshold than 0\.9"):
        list(near_duplicates(similar, 0.9))


class TableModel:
    """A model that embeds texts as the vectors of a table."""

    vectors: ClassVar[dict[str, list[float]]] = {"a": [1, 0], "b": [1, 0.1], "c": [0, 1], "d": [0.1, 1]}

    def embed(self, texts: list[str]) -> Any:
        return np.array([self.vectors[text] for text in texts], np.float32)


@pytest.mark.parametrize(("second", "accuracy"), [(("b", "d"), 1.0), (("d", "b"), 0.0), (("b", "b"), 1.0)])
def test_partners_are_the_nearest_texts(second: tuple[str, str], accuracy: float) -> None:
    pairs = [Pair((first,), (text,)) for first, text in zip("ac", second, strict=True)]
    scores = SentenceVectorsPipeline.partner_accuracy(TableModel(), pairs)  # type: ignore[arg-type]
    assert scores == {"accuracy": accuracy}
