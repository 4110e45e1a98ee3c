"""Published treebanks and corpora: numbers of sentences and words, and byte-exact round trips."""

import lzma
from pathlib import Path

import pytest

from ensue.data.sentences.conllu import Conllu
from ensue.data.sentences.source import SentenceSource
from ensue.data.vectors import read_vectors
from ensue.text.schemes import SchemeDetector
from ensue.text.tokens import tokens

pytestmark = pytest.mark.slow

SIZES = {
    "ud_english_ewt/en_ewt-ud-train.conllu.xz": (12_544, 204_577),
    "ud_english_ewt/en_ewt-ud-dev.conllu.xz": (2_001, 25_147),
    "ud_english_ewt/en_ewt-ud-test.conllu.xz": (2_077, 25_094),
    "ud_chinese_gsd_v1.4/zh-ud-train.conllu.xz": (3_997, 98_608),
    "ud_chinese_gsd_v1.4/zh-ud-dev.conllu.xz": (500, 12_663),
    "ud_chinese_gsd_v1.4/zh-ud-test.conllu.xz": (500, 12_012), "conll2003/eng.train.xz": (14_041, 203_621),
    "conll2003/eng.testa.xz": (3_250, 51_362), "conll2003/eng.testb.xz": (3_453, 46_435),
    "conll2000/train.txt.xz": (8_936, 211_727), "conll2000/test.txt.xz": (2_012, 47_377),
    "resume_ner_zh/train.char.bmes.xz": (3_821, 124_099), "resume_ner_zh/dev.char.bmes": (463, 13_890),
    "resume_ner_zh/test.char.bmes": (477, 15_100),
}  # fmt: skip
SCHEMES = {"conll2003": "iob1", "conll2000": "bio", "resume_ner_zh": "bmes"}


@pytest.mark.parametrize("name", SIZES)
def test_published_data_have_their_sizes_and_round_trip(shared_data: Path, name: str) -> None:
    path = shared_data / name
    source = SentenceSource(path)
    assert source.format.name == ("conllu" if ".conllu" in name else "columns")
    sentences = list(source)
    assert (len(sentences), sum(len(sentence.words) for sentence in sentences)) == SIZES[name]
    labels = [source.format.labels(sentence) for sentence in sentences]
    output = "".join(source.format.write(*pair) for pair in zip(sentences, labels, strict=True))
    assert output.encode() == (lzma.decompress(path.read_bytes()) if name.endswith(".xz") else path.read_bytes())
    if source.format.name == "columns":
        detector = SchemeDetector()
        for of_sentence in labels:
            detector.feed(of_sentence)
        assert detector.result() == SCHEMES[name.partition("/")[0]]


def test_a_treebank_aligns_with_its_running_text(shared_data: Path) -> None:
    """Nearly all words are aligned with the running text of the comments."""
    format, gold, result, both, sentences, same = Conllu(), 0, 0, 0, 0, 0
    for sentence in SentenceSource(shared_data / "ud_english_ewt/en_ewt-ud-dev.conllu.xz"):
        surface = format.surface(sentence)
        comment = next(line for line in sentence.source.text.split("\n") if line.startswith("# text = "))
        sentences += 1
        same += comment.removeprefix("# text = ") == surface.text
        words = {(token.start, token.end) for token in tokens(surface.text, "treebank")}
        gold, result, both = (gold + len(sentence.words), result + len(words), both + len(words & set(surface.offsets)))
    assert same == sentences == 2_001
    assert 2 * both / (gold + result) > 0.985


@pytest.mark.parametrize(
    ("name", "words", "dimension"),
    [
        ("glove.6B.100d.sample.txt", 100, 100),
        ("glove.840B.300d.head600.txt.xz", 596, 300),  # four of 600 words are empty
        ("glove.walkthroughs.50d.txt.xz", 8_064, 50),
        ("pang_lee_polarity_fasttext.vec.xz", 1_689, 100),  # five of 1,694 are not UTF-8
        ("lee_fasttext.vec.xz", 1_762, 10),
    ],
)
def test_published_vectors_are_read(shared_data: Path, name: str, words: int, dimension: int) -> None:
    result, matrix = read_vectors(shared_data / "static_vectors" / name)
    assert (len(result), matrix.shape) == (words, (words, dimension))
    chosen, chosen_matrix = read_vectors(shared_data / "static_vectors" / name, {"of", "no such word"})
    assert chosen == ["of"]
    assert (chosen_matrix[0] == matrix[result.index("of")]).all()
