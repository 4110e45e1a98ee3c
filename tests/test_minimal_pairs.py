"""Scores of minimal pairs: equal to those of single sentences, with ties, in batches of any size."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from ensue.console.tables import show_pairs
from ensue.errors import DataError
from ensue.models.build_text import build_language_model
from ensue.models.language_model import LanguageModel
from ensue.tasks.language_modeling.pipeline import LanguagePipeline
from ensue.tasks.texts import scoring as reading
from ensue.tasks.texts.minimal_pairs import MinimalPairScores
from ensue.tasks.texts.scoring import total_nats
from ensue.text.tokenizers import train_tokenizer
from layer_tables import layers

CHARACTERS = train_tokenizer("characters", ["abc .\n"])
SPECIFICATIONS = [
    layers(kind="lstm", d_embedding=6, d_model=10),
    layers(kind="transformer", context=6, d_embedding=8, d_model=8, num_heads=2, num_layers=1),
]


def model_of(specification: dict[str, Any]) -> LanguageModel:
    torch.manual_seed(0)
    return build_language_model(**specification, vocabulary_size=CHARACTERS.vocabulary_size).double().eval()


@pytest.fixture
def model() -> LanguageModel:
    return model_of(SPECIFICATIONS[0])


def write(path: Path, pairs: list[tuple[str, str]]) -> Path:
    lines = [json.dumps({"sentence_good": good, "sentence_bad": bad}) for good, bad in pairs]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def scores_of(model: LanguageModel, path: Path, **options: Any) -> MinimalPairScores:
    return LanguagePipeline(model, CHARACTERS).minimal_pairs(path, **options)


def nats_of(model: LanguageModel, text: str) -> float:
    return alone(model, CHARACTERS.encode(text).astype(np.int64))


def alone(model: LanguageModel, ids: np.ndarray) -> float:
    inputs = np.concatenate(([CHARACTERS.start_id], ids))[: len(ids)]
    with torch.no_grad():
        nats, _ = model.nats(torch.from_numpy(inputs)[None], torch.from_numpy(ids)[None])
    return float(nats.sum())


def test_the_more_probable_sentence_wins_and_its_end_counts(model: LanguageModel, tmp_path: Path) -> None:
    pairs = [("a b.", "a c."), ("abc", "cab"), ("a", "b"), ("aa", "aab")]
    right = [nats_of(model, f"{good}\n") < nats_of(model, f"{bad}\n") for good, bad in pairs]
    better = [(pair if ok else pair[::-1]) for pair, ok in zip(pairs, right, strict=True)]
    name = write(tmp_path / "x.jsonl", [*better, *(pair[::-1] for pair in better[:1])])
    (row,) = scores_of(model, name).rows
    assert (row.name, row.pairs, row.num_correct, row.accuracy) == ("x", 5, 4.0, 0.8)


def test_ties_count_half(model: LanguageModel, tmp_path: Path) -> None:
    # z and y are both unknown, so these are the same ids
    path = write(tmp_path / "x.jsonl", [("az", "ay"), ("a", "a"), ("abc" * 9 + "z", "abc" * 9 + "y")])
    total = scores_of(model, path).total
    assert (total.accuracy, total.ties) == (0.5, 3)


def test_ties_have_a_column(model: LanguageModel, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    decided = sorted([("a", "b")], key=lambda pair: nats_of(model, f"{pair[0]}\n"))
    scores = scores_of(model, write(tmp_path / "x.jsonl", [("az", "ay"), *decided]))
    show_pairs(scores)
    assert capsys.readouterr().out.split() == [
        "file", "pairs", "accuracy", "ties", "(half", "correct)", "x", "2", f"{scores.total.accuracy:.1%}", "1",
    ]  # fmt: skip
    show_pairs(scores_of(model, write(tmp_path / "y.jsonl", decided)))
    assert "ties" not in capsys.readouterr().out


def test_scores_have_a_row_for_each_file_and_a_total(model: LanguageModel, tmp_path: Path) -> None:
    write(tmp_path / "one.jsonl", [("a", "a")] * 3)
    write(tmp_path / "two.jsonl", [("a", "a")])
    reported: list[str] = []
    scores = scores_of(model, tmp_path, progress=lambda row: reported.append(row.name))
    assert reported == [row.name for row in scores.rows] == ["one", "two"]
    assert scores.as_json() == {
        "accuracy": 0.5,
        "pairs": 4,
        "ties": 4,
        "files": [
            {"name": "one", "pairs": 3, "accuracy": 0.5, "ties": 3},
            {"name": "two", "pairs": 1, "accuracy": 0.5, "ties": 1},
        ],
    }


def test_a_file_without_pairs_or_with_a_wrong_first_line_is_refused(model: LanguageModel, tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").write_text("\n\n")
    with pytest.raises(DataError, match=r"x\.jsonl: no pairs"):
        scores_of(model, tmp_path / "x.jsonl")
    (tmp_path / "x.jsonl").write_text("{}\n")
    with pytest.raises(DataError, match=r"x\.jsonl:1: expected"):
        scores_of(model, tmp_path / "x.jsonl")


@pytest.mark.sampled(2)
@pytest.mark.parametrize("specification", SPECIFICATIONS, ids=["lstm", "transformer"])
@pytest.mark.parametrize(("batch_tokens", "max_batched_tokens"), [(1, 512), (20, 4), (4096, 512)])
def test_scores_do_not_depend_on_batches(
    specification: dict[str, Any], batch_tokens: int, max_batched_tokens: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Texts longer than `max_batched_tokens` are read alone, in segments."""
    monkeypatch.setattr(reading, "MAX_BATCH_TOKENS", batch_tokens)
    monkeypatch.setattr(reading, "MAX_BATCHED_TEXT_TOKENS", max_batched_tokens)
    model = model_of(specification)
    rng = np.random.default_rng(1)
    texts = [rng.integers(0, CHARACTERS.vocabulary_size, length) for length in (3, 0, 1, 6, 2, 6, 5, 1)]
    expected = [alone(model, text) for text in texts]
    assert np.allclose(total_nats(model, texts, start_id=CHARACTERS.start_id), expected, rtol=1e-9)


def test_sentences_longer_than_the_context_can_be_scored() -> None:
    model = model_of(SPECIFICATIONS[1])
    totals = total_nats(model, [np.ones(40, np.int64), np.ones(2, np.int64)], start_id=CHARACTERS.start_id)
    assert np.isfinite(totals).all()
    assert totals[0] > totals[1] > 0
