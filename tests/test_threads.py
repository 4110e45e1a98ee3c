"""Pipelines in many threads that switch often give the same results as in one thread, also at the first call."""

import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest
import torch

from ensue.data.compact_texts import Ragged
from ensue.models.build_text import build_language_model, build_lexicon
from ensue.models.word_features import FormTable
from ensue.tasks.classification.model import ClassifierParts
from ensue.tasks.classification.pipeline import ClassificationPipeline
from ensue.tasks.labeling.model import TaggerParts
from ensue.tasks.labeling.pipeline import LabelingPipeline
from ensue.tasks.language_modeling.pipeline import LanguagePipeline
from ensue.tasks.words.pipeline import FeatureReader
from ensue.text.labels import Classes, Labels
from ensue.text.tokenizers import train_tokenizer
from layer_tables import layers
from training.tiny import some_slow
from training.tiny_texts import FILLERS, PARTS_OF_SPEECH, TOPICS, classifying, columns, sentences, tagging, tsv
from training.tiny_texts import documents as labeled_texts

pytestmark = pytest.mark.usefixtures("hasty")
THREADS = 8
POOL = [word for words in (*PARTS_OF_SPEECH.values(), FILLERS, *TOPICS.values()) for word in words]


def at_once(work: Callable[[int], Any]) -> list[Any]:
    """Return the results of `work(0)`, `work(1)`, ..., each in its own thread; all begin together."""
    start = Barrier(THREADS)

    def begin(number: int) -> Any:
        start.wait()
        return work(number)

    with ThreadPoolExecutor(THREADS) as pool:
        return list(pool.map(begin, range(THREADS)))


def texts_of(number: int, count: int = 12) -> list[list[str]]:
    """Return texts of which half of the words occur in all threads, half only in one."""
    choose = random.Random(number)
    words = [*POOL, *(f"word{number}-{n}" for n in range(len(POOL)))]
    return [choose.choices(words, k=choose.randint(1, 9)) for _ in range(count)]


def tagger(folder: Path, encoder: str) -> LabelingPipeline:
    torch.manual_seed(0)
    features = {"characters": "lstm", "d_characters": 6, "affixes": 2, "d_shape": 2}
    recipe = tagging(folder / "names.txt", encoder=encoder, head={"kind": "crf"}, features=features)
    lexicon = build_lexicon(recipe.features, dict.fromkeys(POOL, 2))
    labels = Labels(["O", "B-PER", "I-PER", "B-LOC", "I-LOC"], scheme="bio", tag_scheme="iobes")
    model = TaggerParts(lexicon, None, labels).build(recipe)
    return LabelingPipeline(model, lexicon, labels, recipe=recipe)


def classifier(folder: Path, encoder: str) -> ClassificationPipeline:
    torch.manual_seed(0)
    head = {"pooling": ["last", "mean", "max", "attention"]}
    recipe = classifying(folder / "topics.tsv", encoder=encoder, head=head, features={"characters": "cnn"})
    lexicon = build_lexicon(recipe.features, dict.fromkeys(POOL, 2))
    labels = Classes(sorted(TOPICS))
    model = ClassifierParts(lexicon, None, labels, pair=False).build(recipe)
    return ClassificationPipeline(model, lexicon, labels, recipe=recipe)


@pytest.mark.slow
@pytest.mark.parametrize(("make", "encoder"), [(tagger, "lstm"), (tagger, "transformer"), (classifier, "transformer")])
def test_threads_share_taggers_and_classifiers(make: Callable[[Path, str], Any], encoder: str, tmp_path: Path) -> None:
    """The threads predict, inspect and evaluate at the same time."""
    data = columns(sentences(20)) if make is tagger else tsv(labeled_texts(20))
    (tmp_path / "data.tsv").write_text(data)

    def work(pipeline: Any, number: int) -> list[float]:
        if number == 7:
            format = "columns" if make is tagger else ""
            return [float(pipeline.evaluate(tmp_path / "data.tsv", format=format).as_json()["accuracy"])]
        texts = [" ".join(words) for words in texts_of(number)]
        if number == 6:
            pipeline.inspect(texts[0])
        if make is classifier:
            return [share for answer in pipeline.predict(texts) for share in answer.probabilities.values()]
        batches = [[text] for text in texts] if number % 2 else [texts]
        answers = [answer for batch in batches for answer in pipeline.predict(batch, confidence=True)]
        return [value for answer in answers for word in answer for value in (word.confidence, hash(word.label))]

    alone = make(tmp_path, encoder)
    expected = [work(alone, number) for number in range(THREADS)]
    for values, others in zip(at_once(partial(work, make(tmp_path, encoder))), expected, strict=True):
        assert values == pytest.approx(others, abs=1e-5)  # the batch of a word's vector differs


LANGUAGE = {
    "lstm": layers(kind="lstm", d_embedding=8, d_model=12, num_layers=2),
    "clockwork": layers(kind="clockwork", d_embedding=8, d_model=12, periods=[1, 2, 4]),
    "transformer": layers(kind="transformer", d_embedding=8, d_model=8, num_heads=2, context=16),
}


@pytest.mark.slow
@pytest.mark.parametrize("encoder", some_slow(LANGUAGE, "lstm"))
def test_threads_of_language_models_give_the_results_of_one(encoder: str, tmp_path: Path) -> None:
    """Samples with a seed and scores are bit-identical."""
    text = "".join(" ".join(words) + "\n" for words in texts_of(0, 60))
    (tmp_path / "text.txt").write_text(text)

    def pipeline() -> LanguagePipeline:
        torch.manual_seed(0)
        tokenizer = train_tokenizer("characters", [text])
        return LanguagePipeline(
            build_language_model(**LANGUAGE[encoder], vocabulary_size=tokenizer.vocabulary_size), tokenizer
        )

    def work(model: LanguagePipeline, number: int) -> Any:
        prompt = " ".join(texts_of(number)[0])
        if number < 3:
            return ["".join(model.generate(prompt[:10], max_tokens=20, seed=seed)) for seed in range(number, 4)]
        if number < 5:
            return model.score(" ".join(" ".join(words) for words in texts_of(number)))
        if number < 6:
            return model.samples(prompt[:9], 3, max_tokens=10, seed=number)
        return model.evaluate(tmp_path / "text.txt").as_json()

    alone = pipeline()
    expected = [work(alone, number) for number in range(THREADS)]
    assert at_once(partial(work, pipeline())) == expected


def test_threads_read_word_vectors_of_a_file(tmp_path: Path) -> None:
    """The table of vectors grows while other threads read it."""
    numbers = {
        word: [float(n), 1.0, n / 7]
        for n, words in enumerate(map(texts_of, range(THREADS)))
        for text in words
        for word in text
    }
    (tmp_path / "vectors.txt").write_text(
        "".join(f"{word} {' '.join(map(str, row))}\n" for word, row in numbers.items())
    )
    recipe = tagging(tmp_path / "names.txt", features={"vectors": str(tmp_path / "vectors.txt"), "d_words": 0})
    lexicon = build_lexicon(recipe.features, {}, vectors=["the"])
    labels = Labels(["a", "b"], scheme=None, tag_scheme=None)
    model = TaggerParts(lexicon, torch.zeros(2, 3), labels).build(recipe).eval()
    reader = FeatureReader(model.features, lexicon, torch.device("cpu")).with_vectors(tmp_path / "vectors.txt")

    def work(number: int) -> list[tuple[list[str], FormTable, Ragged]]:
        return [(text, *reader.read([text])) for text in texts_of(number)]

    for answers in at_once(work):
        for text, table, rows in answers:
            expected = torch.tensor([numbers[word] if word != "the" else [0.0] * 3 for word in text])
            assert torch.equal(table.vectors[rows.values], expected)


def test_with_splitter_does_not_change_the_pipeline(tmp_path: Path) -> None:
    pipeline = tagger(tmp_path, "lstm")
    other = pipeline.with_splitter("whitespace")
    assert [word.text for word in other.predict(["it's done."])[0]] == ["it's", "done."]
    assert [word.text for word in pipeline.predict(["it's done."])[0]] == ["it", "'s", "done", "."]
    with pytest.raises(AttributeError):
        pipeline.splitter = "whitespace"  # type: ignore[misc]
