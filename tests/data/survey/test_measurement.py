"""The numbers of data, against counts by hand and by plain Python."""

import random
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ensue.data.survey import document_survey, sentence_survey
from ensue.data.survey.document_survey import DocumentSummary
from ensue.data.survey.measurement import summarize
from ensue.data.survey.plain_survey import PlainSummary
from ensue.data.survey.sentence_survey import SentenceSummary
from ensue.errors import DataError
from ensue.tasks.classification.recipe import ClassificationData
from ensue.tasks.labeling.recipe import LabelingData

CONLLU = "# newdoc\n# text = Gatos\n1\tGatos\tgato\tNOUN\tN\tGender=Masc|Number=Plur" + "\t_" * 3 + "\tNER=B-X\n\n"


def sentences(path: Path, text: str, **options: str) -> SentenceSummary:
    path.write_text(text, encoding="utf-8", newline="")
    found = summarize(path, **options)
    assert isinstance(found, SentenceSummary)
    return found


def texts(path: Path, text: str, **options: str) -> DocumentSummary:
    path.write_text(text, encoding="utf-8", newline="")
    found = summarize(path, **options)
    assert isinstance(found, DocumentSummary)
    return found


IOB1 = (
    "-DOCSTART- -X- O\n\nAnn NNP I-PER\nleft VBD O\nNew NNP I-LOC\nYork NNP I-LOC\n\n"
    "It PRP O\nis VBZ O\n\n-DOCSTART- -X- O\n\nAnn NNP I-PER\nMay NNP B-PER\n\n"
)


def test_sentences_in_columns(tmp_path: Path) -> None:
    found = sentences(tmp_path / "x.txt", IOB1)
    assert found.error is None
    assert (found.words_column, found.labels_column, found.width) == ("1", "3", 3)
    assert (found.size, found.num_documents, found.num_files) == (3, 2, 1)
    assert found.words == Counter(["Ann", "left", "New", "York", "It", "is", "Ann", "May"])
    assert (found.num_characters, found.characters) == (24, set("AnnleftNewYorkItisMay"))
    assert found.lengths[0].counts == {4: 1, 2: 2}
    assert (found.scheme, found.slips) == ("iob1", None)
    assert {name: lengths.counts for name, lengths in found.span_lengths.items()} == {"PER": {1: 3}, "LOC": {2: 1}}
    assert found.columns.counts == {"2": {"NNP": 5, "VBD": 1, "PRP": 1, "VBZ": 1}}


def test_columns_of_ones_choice(tmp_path: Path) -> None:
    found = sentences(tmp_path / "x.txt", IOB1, words="2", labels="1")
    assert (found.words_column, found.labels_column) == ("2", "1")
    assert found.labels["Ann"] == 2
    assert list(found.columns.counts) == ["3"]
    assert sentences(tmp_path / "x.txt", IOB1, labels="last").labels_column == "3"
    missing = sentences(tmp_path / "x.txt", IOB1, labels="4")
    assert (missing.size, str(missing.error)) == (0, f'{tmp_path}/x.txt:3: no column "4"; the file has columns 1 to 3')


def test_slips_name_the_word(tmp_path: Path) -> None:
    clean = "a B-X\nb I-X\n\n" * 30
    slip = "a O\nb O\nc I-X\n\n"
    (tmp_path / "1.conll").write_text(clean)
    (tmp_path / "2.conll").write_text(clean + slip + slip)
    found = summarize(tmp_path / "*.conll")
    assert isinstance(found, SentenceSummary)
    assert (found.scheme, found.num_documents, found.num_files) == ("bio", 2, 2)
    assert found.slips is not None
    assert (found.slips.sentences, found.slips.reason) == (2, '"I-X" after "O"')
    assert str(found.slips.first) == f"{tmp_path}/2.conll:{clean.count(chr(10)) + 3}"


def test_a_slip_at_the_end_of_a_sentence(tmp_path: Path) -> None:
    found = sentences(tmp_path / "x.conll", "a S-X\nb B-X\nc E-X\n\n" * 30 + "a O\nb B-X\n")
    assert found.scheme == "iobes"
    assert found.slips is not None
    assert (found.slips.first.line, found.slips.reason) == (122, '"B-X" at the end')


def test_mixed_schemes(tmp_path: Path) -> None:
    found = sentences(tmp_path / "x.conll", "a B-X\nb I-X\n\nc M-X\n")
    assert (found.is_mixed, found.scheme, found.span_lengths) == (True, None, {})
    assert "x.conll:4: mixed schemes" in str(found.error)
    assert found.labels == {"B-X": 1, "I-X": 1, "M-X": 1}


def test_only_o_and_no_labels(tmp_path: Path) -> None:
    found = sentences(tmp_path / "x.conll", "a O\nb O\n\nc O\n")
    assert (found.scheme, found.is_mixed, found.labels, found.error) == (None, False, {"O": 3}, None)
    found = sentences(tmp_path / "x.conll", "a\nb\n\nc\n")
    assert (found.is_labeled, found.labels, found.labels_column, found.error) == (False, {}, "", None)
    assert found.size == 2


def test_what_was_read_before_the_first_wrong_line(tmp_path: Path) -> None:
    found = sentences(tmp_path / "x.conll", "a X\nb Y\n\nc X\n\nd X\ne X X\n\nf X\n")
    assert found.words == {"a": 1, "b": 1, "c": 1}
    assert found.labels == {"X": 2, "Y": 1}
    assert str(found.error).startswith(f"{tmp_path}/x.conll:7: expected 2 columns")


def test_conllu(tmp_path: Path) -> None:
    found = sentences(tmp_path / "x.conllu", CONLLU + CONLLU.replace("Plur", "Sing").replace("# newdoc\n", ""))
    assert (found.words_column, found.labels_column, found.num_documents) == ("form", "upos", 1)
    assert found.labels == {"NOUN": 2}
    assert found.columns.counts["feats.Number"] == {"Plur": 1, "Sing": 1}
    assert found.columns.counts["feats.Gender"] == {"Masc": 2}
    assert found.columns.counts["misc.NER"] == {"B-X": 2}
    assert found.columns.counts["lemma"] == {"gato": 2}
    assert not {"form", "upos"} & set(found.columns.counts)
    assert sentences(tmp_path / "x.conllu", CONLLU, labels="misc.NER").scheme == "bio"


def test_sentences_in_json(tmp_path: Path) -> None:
    lines = '{"words": ["a", "b"], "ner_tags": ["B-X", "O"], "pos": ["N", "V"]}\n{"words": [], "ner_tags": []}\n'
    found = sentences(tmp_path / "x.jsonl", lines)
    assert (found.words_column, found.labels_column, found.scheme) == ("words", "ner_tags", "bio")
    assert (found.size, found.num_empty, str(found.first_empty)) == (2, 1, f"{tmp_path}/x.jsonl:2")
    assert found.columns.counts == {"pos": {"N": 1, "V": 1}}
    wrong = sentences(tmp_path / "x.jsonl", lines + '{"words": ["a"]}\n')
    assert (wrong.size, str(wrong.error)[: len(f"{tmp_path}/x.jsonl:3: ")]) == (2, f"{tmp_path}/x.jsonl:3: ")
    spans = sentences(
        tmp_path / "x.jsonl", '{"text": "Ann left", "entities": [{"start": 0, "end": 3, "label": "P"}]}\n'
    )
    assert (spans.words_column, spans.labels_column, spans.labels) == ("text", "entities", {"B-P": 1, "O": 1})


@given(st.lists(st.lists(st.tuples(st.sampled_from(["a", "é", "b" * 30]), st.sampled_from("XYZ")), min_size=1)))
def test_sentences_against_plain_counting(
    tmp_path_factory: pytest.TempPathFactory, pairs: Sequence[Sequence[tuple[str, str]]]
) -> None:
    path = tmp_path_factory.mktemp("sentences") / "x.conll"
    text = "".join("".join(f"{word} {label}\n" for word, label in sentence) + "\n" for sentence in pairs)
    found = sentences(path, text or "\n")
    assert found.size == len(pairs)
    assert found.words == Counter(word for sentence in pairs for word, _ in sentence)
    assert found.labels == Counter(label for sentence in pairs for _, label in sentence)
    assert sum((lengths.counts for lengths in found.lengths), Counter()) == Counter(map(len, pairs))
    assert found.repeats.texts == len(pairs) - len({tuple(word for word, _ in sentence) for sentence in pairs})
    assert (found.error is None) == bool(pairs)


def test_a_table_of_texts(tmp_path: Path) -> None:
    table = "id\tlabel\ttext\n1\tpos\tgood , good film\n2\tneg\tdull film\n3\tpos\t \n4\tpos\tgood , good film\n"
    found = texts(tmp_path / "x.tsv", table)
    assert found.error is None
    assert str(found.layout) == 'tsv with a header, label: column 2 "label", text: column 3 "text"'
    assert (found.size, found.labels) == (4, {"pos": 3, "neg": 1})
    assert found.words == {"good": 4, ",": 2, "film": 3, "dull": 1}
    assert found.num_characters == 2 * len("good , good film") + len("dull film") + 1
    assert (found.num_empty, str(found.first_empty)) == (1, f"{tmp_path}/x.tsv:4")
    assert (found.repeats.texts, found.repeats.with_other_labels) == (1, 0)
    assert list(found.columns.counts["1"]) == ["id", "1", "2", "3", "4"]


def test_pairs_and_texts_in_parts(tmp_path: Path) -> None:
    rows = "".join(f"{n % 2}\ta b c\td e\tf g h i\n" for n in range(8))
    pair = texts(tmp_path / "x.tsv", rows, words="2,3", labels="1")
    assert [lengths.counts for lengths in pair.lengths] == [{3: 8}, {2: 8}]
    joined = texts(tmp_path / "x.tsv", rows, words="2,3,4", labels="1")
    assert [lengths.counts for lengths in joined.lengths] == [{9: 8}]


def test_several_labels(tmp_path: Path) -> None:
    found = texts(tmp_path / "x.jsonl", '{"text": "a b", "label": ["x", "y"]}\n{"text": "b c", "label": ["y"]}\n')
    assert (found.labels, found.labels_in_a_text.counts) == ({"x": 1, "y": 2}, {2: 1, 1: 1})
    missing = texts(tmp_path / "x.txt", "__label__a so it is\n__label__b so\nso\n")
    assert (missing.size, str(missing.error)) == (2, f"{tmp_path}/x.txt:3: no label")


def test_a_label_that_cannot_be_told(tmp_path: Path) -> None:
    found = texts(tmp_path / "x.tsv", "".join(f"a{n % 2}\t{n % 3}\tone two three {n}\n" for n in range(12)))
    assert "which is the label: it may be column 1, column 2" in str(found.error)
    assert (found.is_labeled, found.size) == (False, 12)
    assert [len(found.columns.counts[name]) for name in "123"] == [2, 3, 12]


def test_texts_without_labels(tmp_path: Path) -> None:
    found = texts(tmp_path / "x.jsonl", '{"text": "a b"}\n{"text": "b c"}\n')
    assert (found.is_labeled, found.error, found.size) == (False, None, 2)


def test_texts_against_plain_counting(tmp_path: Path) -> None:
    choose = random.Random(0).choice
    pairs = [
        (choose("XYZ"), " ".join(choose(["so", "it", "is"]) for _ in range(choose(range(3, 9))))) for _ in range(99)
    ]
    found = texts(tmp_path / "x.csv", "".join(f'{label},"{text}"\n' for label, text in pairs))
    assert found.labels == Counter(label for label, _ in pairs)
    assert found.words == Counter(word for _, text in pairs for word in text.split())
    assert found.lengths[0].counts == Counter(len(text.split()) for _, text in pairs)
    assert found.repeats.texts == 99 - len({text for _, text in pairs})


@given(st.lists(st.text(st.sampled_from("ab \né\0"), min_size=1, max_size=20), min_size=1, max_size=3))
def test_plain_text_against_plain_counting(tmp_path_factory: pytest.TempPathFactory, parts: list[str]) -> None:
    folder = tmp_path_factory.mktemp("plain")
    for number, part in enumerate(parts):
        (folder / f"{number}.txt").write_text(part, encoding="utf-8", newline="")
    found = summarize(folder, format="text")
    assert isinstance(found, PlainSummary)
    lines = [line for part in parts for line in part.removesuffix("\n").split("\n")]
    assert found.line_lengths.counts == Counter(map(len, lines))
    assert found.words == Counter(word for part in parts for word in part.split())
    assert (found.num_characters, found.characters) == (sum(map(len, parts)), set("".join(parts)))
    assert (found.longest, found.num_nul) == (max(map(len, lines)), "".join(parts).count("\0"))


def test_places_in_plain_text(tmp_path: Path) -> None:
    (tmp_path / "1.txt").write_text("a\nbb\r\n", newline="")
    (tmp_path / "2.txt").write_text("a\nb\n\0 cc\n")
    found = summarize(tmp_path)
    assert isinstance(found, PlainSummary)
    assert (str(found.longest_line), found.longest) == (f"{tmp_path}/2.txt:3", 4)
    assert str(found.first_nul) == f"{tmp_path}/2.txt:3"
    assert found.line_lengths.counts == {1: 3, 2: 1, 4: 1}


def test_plain_text_of_several_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ensue.data.decoding.BLOCK_BYTES", 7)
    text = "one two\r\n\r\nthree four five\r\nsix\n" * 5
    (tmp_path / "x.txt").write_text(text, newline="")
    found = summarize(tmp_path / "x.txt", format="text")
    assert isinstance(found, PlainSummary)
    assert found.words == Counter(text.split())
    assert found.line_lengths.counts == {7: 5, 0: 5, 15: 5, 3: 5}


def test_what_cannot_be_read_at_all(tmp_path: Path) -> None:
    (tmp_path / "empty.conll").write_bytes(b"")
    with pytest.raises(DataError, match=r"empty.conll: the text is empty"):
        summarize(tmp_path / "empty.conll")
    with pytest.raises(DataError, match='did you mean "empty'):
        summarize(tmp_path / "empty.conl")
    (tmp_path / "plain.txt").write_text("so it is\n")
    with pytest.raises(DataError, match='no column "2": it is taken for plain text'):
        summarize(tmp_path / "plain.txt", labels="2")
    with pytest.raises(DataError, match='unknown encoding "utf-9"'):
        summarize(tmp_path / "plain.txt", encoding="utf-9")


def test_words_are_cut_as_the_recipes_do() -> None:
    assert LabelingData().splitter == sentence_survey.SPLITTER
    assert ClassificationData().splitter == document_survey.SPLITTER
