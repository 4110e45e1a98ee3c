"""Taggers and classifiers trained on real data for a minute or less; skipped without ../shared/data."""

import lzma
import random
import statistics
import time
from itertools import islice
from pathlib import Path

import pytest

import ensue
from ensue.data.sentences.running_text import running_text
from ensue.data.sentences.source import SentenceSource
from ensue.tasks.labeling.cutter import CutterPipeline
from ensue.tasks.labeling.pipeline import LabelingPipeline
from machine_speed import MachineSpeed

pytestmark = pytest.mark.slow


def test_a_tagger_of_an_english_treebank_is_accurate_and_fast(shared_data: Path, tmp_path: Path) -> None:
    """After one of thirty epochs, scored on development data. Columns other than UPOS are written unchanged."""
    folder = shared_data / "ud_english_ewt"
    train, dev = (folder / f"en_ewt-ud-{part}.conllu.xz" for part in ("train", "dev"))
    settings = {"train.epochs": 1, "train.validations": 1}
    tagger = ensue.train("tag-lstm", train=train, valid=dev, out=tmp_path / "pos", settings=settings, threads=1)
    assert tagger.evaluate(dev).accuracy >= 0.925
    source = tagger.source(dev)
    assert isinstance(source, SentenceSource)
    for answer in tagger.label(source):
        before, after = (
            [line.split("\t") for line in text.split("\n")]
            for text in (answer.sentence.source.text, tagger.written(answer, source.format))
        )
        assert [fields[:3] + fields[4:] for fields in before] == [fields[:3] + fields[4:] for fields in after]
    assert _milliseconds(tagger, ["the", "cat"] * 10) <= 20  # about 2 on an idle machine


def test_a_cutter_finds_sentences_and_words_of_raw_text(shared_data: Path, tmp_path: Path) -> None:
    """After three epochs of development data, scored on 500 test sentences. No character is lost."""
    folder = shared_data / "ud_english_ewt"
    dev, test = (folder / f"en_ewt-ud-{part}.conllu.xz" for part in ("dev", "test"))
    settings = {"train.epochs": 3, "train.validations": 1, "train.batch_tokens": 2_000}
    cutter = ensue.train("cut-lstm", train=dev, valid=dev, out=tmp_path / "cutter", settings=settings, threads=1)
    assert isinstance(cutter, CutterPipeline)
    first = list(islice(SentenceSource(test), 500))
    (tmp_path / "first.conllu").write_text("".join(sentence.source.text for sentence in first), encoding="utf-8")
    scores = cutter.evaluate(tmp_path / "first.conllu").scores
    assert scores["tokens"].f1 >= 0.94
    assert scores["sentences"].f1 >= 0.7
    text = running_text(first)
    (sentences,) = cutter.predict([text])
    forms = "".join(token.form for sentence in sentences for token in sentence.tokens)
    assert "".join(forms.split()) == "".join(text.split())


def _milliseconds(tagger: LabelingPipeline, words: list[str]) -> float:
    seconds = []
    for _ in range(50):
        start = time.process_time()
        tagger.predict([words])
        seconds.append(time.process_time() - start)
    return 1000 * statistics.median(seconds)


def test_a_tagger_finds_names_in_news(shared_data: Path, tmp_path: Path) -> None:
    """After one epoch with the columns of parts of speech and chunks, scored on development data."""
    folder = shared_data / "conll2003"
    settings = {"train.epochs": 1, "train.validations": 1, "features.columns": ["2", "3"]}
    train, dev = folder / "eng.train.xz", folder / "eng.testa.xz"
    tagger = ensue.train("tag-lstm-crf", train=train, valid=dev, out=tmp_path / "names", settings=settings, threads=1)
    assert tagger.labels.scheme == "iob1"
    scores = tagger.evaluate(dev)
    assert scores.f1 >= 0.84
    assert scores.tokens == 51_362


def test_a_linear_tagger_learns_chunks_from_300_sentences(shared_data: Path, tmp_path: Path) -> None:
    """The tagger reads only words. It takes about 12 s of processor time on the reference machine."""
    folder, path = shared_data / "conll2000", tmp_path / "few.txt"
    path.write_text("".join(f"{s.source.text}\n" for s in islice(SentenceSource(folder / "train.txt.xz"), 300)))
    speed, start = MachineSpeed(), time.process_time()
    tagger = ensue.train("tag-linear", train=path, out=tmp_path / "chunks", threads=1)
    seconds = time.process_time() - start
    speed.seconds += [speed.measure() for _ in range(5)]
    assert speed.in_reference_seconds(seconds) <= 20
    assert tagger.evaluate(folder / "test.txt.xz").f1 >= 0.8


@pytest.mark.usefixtures("pictures")
def test_a_bag_of_words_classifies_reviews(shared_data: Path, tmp_path: Path) -> None:
    """After one epoch of 22,500 reviews; a random tenth of all 25,000 is held out."""
    train = shared_data / "imdb" / "train.jsonl.xz"
    settings = {"train.epochs": 1, "train.validations": 1}
    classifier = ensue.train("classify-bag", train=train, out=tmp_path / "films", settings=settings, threads=1)
    (answer,) = classifier.predict(["A wonderful, moving film. I loved every minute of it."])
    assert answer.label == "pos"
    records = (tmp_path / "films" / "metrics.jsonl").read_text(encoding="utf-8")
    assert '"examples": 2500' in records
    assert (tmp_path / "films" / "confusion.png").exists()


@pytest.mark.parametrize(
    ("name", "min_accuracy", "min_accuracy_with_vectors"),
    [("cr/custrev.all", 0.64, 0.65), ("subj/subj.all", 0.80, 0.84), ("mpqa/mpqa.all", 0.66, 0.74)],
)
def test_linear_classifiers_learn_from_a_hundred_labels(
    name: str, min_accuracy: float, min_accuracy_with_vectors: float, shared_data: Path, tmp_path: Path
) -> None:
    """A linear model of n-grams, alone and with GloVe vectors (docs/few-labels.md)."""
    (file,) = shared_data.glob(f"{name}*")
    opened = lzma.open if file.suffix == ".xz" else open
    with opened(file, "rt", encoding="cp1252") as lines:  # type: ignore[operator]
        examples = [line.strip().partition(" ") for line in lines if line.strip()]
    examples = random.Random(0).sample(examples, 1_100)
    for part, rows in (("train", examples[:100]), ("test", examples[100:])):
        (tmp_path / f"{part}.tsv").write_text("".join(f"{label}\t{text}\n" for label, _, text in rows))
    glove = str(shared_data / "static_vectors" / "glove.6B.100d.cut.txt.xz")
    for settings, bound in (({}, min_accuracy), ({"features.vectors": glove}, min_accuracy_with_vectors)):
        model = ensue.train(
            "classify-linear", train=tmp_path / "train.tsv", out=tmp_path / "run", settings=settings, threads=1,
            overwrite=True,
        )  # fmt: skip
        accuracy = model.evaluate(tmp_path / "test.tsv").accuracy
        assert accuracy >= bound


def test_an_lstm_classifies_sentences_of_reviews(shared_data: Path, tmp_path: Path) -> None:
    folder = shared_data / "sst"
    train, dev = folder / "stsa.binary.train.xz", folder / "stsa.binary.dev"
    settings = {"train.epochs": 3, "train.validations": 1}
    classifier = ensue.train("classify-lstm", train=train, valid=dev, out=tmp_path / "sst", settings=settings)
    assert classifier.evaluate(dev).accuracy >= 0.75
