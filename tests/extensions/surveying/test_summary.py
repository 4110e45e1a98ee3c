"""Summaries of data against counts by hand and by plain Python."""

import random
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ensue.errors import DataError
from ensue.extensions.surveying.documents import SPLITTER as TEXT_SPLITTER
from ensue.extensions.surveying.documents import DocumentSummary
from ensue.extensions.surveying.plain import PlainSummary
from ensue.extensions.surveying.sentences import SPLITTER as SENTENCE_SPLITTER
from ensue.extensions.surveying.sentences import SentenceSummary
from ensue.extensions.surveying.summary import summarize
from ensue.tasks.classification.recipe import ClassificationData
from ensue.tasks.labeling.recipe import LabelingData

CONLLU = "# newdoc\n# text = Gatos\n1\tGatos\tgato\tNOUN\tN\tGender=Masc|Number=Plur" + "\t_" * 3 + "\tNER=B-X\n\n"


def sentences(path: Path, text: str, **options: str) -> SentenceSummary:
    path.write_text(text, encoding="utf-8", newline="")
    result = summarize(path, **options)
    assert isinstance(result, SentenceSummary)
    return result


def texts(path: Path, text: str, **options: str) -> DocumentSummary:
    path.write_text(text, encoding="utf-8", newline="")
    result = summarize(path, **options)
    assert isinstance(result, DocumentSummary)
    return result


IOB1 = (
    "-DOCSTART- -X- O\n\nAnn NNP I-PER\nleft VBD O\nNew NNP I-LOC\nYork NNP I-LOC\n\n"
    "It PRP O\nis VBZ O\n\n-DOCSTART- -X- O\n\nAnn NNP I-PER\nMay NNP B-PER\n\n"
)


def test_a_summary_of_sentences_in_columns(tmp_path: Path) -> None:
    result = sentences(tmp_path / "x.txt", IOB1)
    assert result.error is None
    assert (result.words_column, result.labels_column, result.width) == ("1", "3", 3)
    assert (result.size, result.num_documents, result.num_files) == (3, 2, 1)
    assert result.words == Counter(["Ann", "left", "New", "York", "It", "is", "Ann", "May"])
    assert (result.num_characters, result.characters) == (24, set("AnnleftNewYorkItisMay"))
    assert result.lengths[0].counts == {4: 1, 2: 2}
    assert (result.scheme, result.described_scheme) == ("iob1", "iob1")
    assert {name: lengths.counts for name, lengths in result.span_lengths.items()} == {"PER": {1: 3}, "LOC": {2: 1}}
    assert result.columns.counts == {"2": {"NNP": 5, "VBD": 1, "PRP": 1, "VBZ": 1}}


def test_violations_of_the_scheme_are_counted_with_the_first_place(tmp_path: Path) -> None:
    clean = "a B-X\nb I-X\n\n" * 30
    violation = "a O\nb O\nc I-X\n\n"
    (tmp_path / "1.conll").write_text(clean)
    (tmp_path / "2.conll").write_text(clean + violation + violation)
    result = summarize(tmp_path / "*.conll")
    assert isinstance(result, SentenceSummary)
    assert (result.scheme, result.num_documents, result.num_files) == ("bio", 2, 2)
    place = f"{tmp_path}/2.conll:{clean.count(chr(10)) + 3}"
    assert result.described_scheme == f'bio; 2 sentences break it, the first at {place}: "I-X" after "O"'


def test_a_violation_at_the_end_of_a_sentence_is_counted(tmp_path: Path) -> None:
    result = sentences(tmp_path / "x.conll", "a S-X\nb B-X\nc E-X\n\n" * 30 + "a O\nb B-X\n")
    assert result.scheme == "iobes"
    assert result.described_scheme.endswith(
        "1 sentence breaks it, the first at " + f'{tmp_path}/x.conll:122: "B-X" at the end'
    )


def test_a_summary_of_conllu(tmp_path: Path) -> None:
    result = sentences(tmp_path / "x.conllu", CONLLU + CONLLU.replace("Plur", "Sing").replace("# newdoc\n", ""))
    assert (result.words_column, result.labels_column, result.num_documents) == ("form", "upos", 1)
    assert result.labels == {"NOUN": 2}
    assert result.columns.counts["feats.Number"] == {"Plur": 1, "Sing": 1}
    assert result.columns.counts["feats.Gender"] == {"Masc": 2}
    assert result.columns.counts["misc.NER"] == {"B-X": 2}
    assert result.columns.counts["lemma"] == {"gato": 2}
    assert not {"form", "upos"} & set(result.columns.counts)
    assert sentences(tmp_path / "x.conllu", CONLLU, labels="misc.NER").scheme == "bio"


def test_a_summary_of_sentences_in_json(tmp_path: Path) -> None:
    lines = '{"words": ["a", "b"], "ner_tags": ["B-X", "O"], "pos": ["N", "V"]}\n{"words": [], "ner_tags": []}\n'
    result = sentences(tmp_path / "x.jsonl", lines)
    assert (result.words_column, result.labels_column, result.scheme) == ("words", "ner_tags", "bio")
    assert (result.size, str(result.empty)) == (2, f"1, the first at {tmp_path}/x.jsonl:2")
    assert result.columns.counts == {"pos": {"N": 1, "V": 1}}
    wrong = sentences(tmp_path / "x.jsonl", lines + '{"words": ["a"]}\n')
    assert (wrong.size, wrong.incomplete) == (2, f"1 sentence: 1 without a label, the first at {tmp_path}/x.jsonl:3")
    spans = sentences(
        tmp_path / "x.jsonl", '{"text": "Ann left", "entities": [{"start": 0, "end": 3, "label": "P"}]}\n'
    )
    assert (spans.words_column, spans.labels_column, spans.labels) == ("text", "entities", {"B-P": 1, "O": 1})


@given(st.lists(st.lists(st.tuples(st.sampled_from(["a", "é", "b" * 30]), st.sampled_from("XYZ")), min_size=1)))
def test_counts_of_sentences_are_those_of_plain_python(
    tmp_path_factory: pytest.TempPathFactory, pairs: Sequence[Sequence[tuple[str, str]]]
) -> None:
    path = tmp_path_factory.mktemp("sentences") / "x.conll"
    text = "".join("".join(f"{word} {label}\n" for word, label in sentence) + "\n" for sentence in pairs)
    result = sentences(path, text or "\n")
    assert result.size == len(pairs)
    assert result.words == Counter(word for sentence in pairs for word, _ in sentence)
    assert result.labels == Counter(label for sentence in pairs for _, label in sentence)
    assert sum((lengths.counts for lengths in result.lengths), Counter()) == Counter(map(len, pairs))
    assert result.repeats.num_repeats == len(pairs) - len({tuple(word for word, _ in sentence) for sentence in pairs})
    assert (result.error is None) == bool(pairs)


def test_a_summary_of_a_table_of_texts(tmp_path: Path) -> None:
    table = "id\tlabel\ttext\n1\tpos\tgood , good film\n2\tneg\tdull film\n3\tpos\t \n4\tpos\tgood , good film\n"
    result = texts(tmp_path / "x.tsv", table)
    assert result.error is None
    assert str(result.layout) == 'tsv with a header, label: column 2 "label", text: column 3 "text"'
    assert (result.size, result.labels) == (3, {"pos": 2, "neg": 1})
    assert result.words == {"good": 4, ",": 2, "film": 3, "dull": 1}
    assert result.num_characters == 2 * len("good , good film") + len("dull film")
    assert result.incomplete == f"1 row: 1 without a text, the first at {tmp_path}/x.tsv:4"
    assert (result.repeats.num_repeats, result.repeats.with_other_labels.count) == (1, 0)
    assert list(result.columns.counts["1"]) == ["id", "1", "2", "3", "4"]


def test_two_columns_are_a_pair_and_three_are_joined(tmp_path: Path) -> None:
    rows = "".join(f"{n % 2}\ta b c\td e\tf g h i\n" for n in range(8))
    pair = texts(tmp_path / "x.tsv", rows, words="2,3", labels="1")
    assert [lengths.counts for lengths in pair.lengths] == [{3: 8}, {2: 8}]
    joined = texts(tmp_path / "x.tsv", rows, words="2,3,4", labels="1")
    assert [lengths.counts for lengths in joined.lengths] == [{9: 8}]


def test_several_labels_of_a_text_are_counted(tmp_path: Path) -> None:
    result = texts(tmp_path / "x.jsonl", '{"text": "a b", "label": ["x", "y"]}\n{"text": "b c", "label": ["y"]}\n')
    assert (result.labels, result.labels_per_text.counts) == ({"x": 1, "y": 2}, {2: 1, 1: 1})
    missing = texts(tmp_path / "x.txt", "__label__a so it is\n__label__b so\nso\n")
    assert (missing.size, missing.incomplete) == (2, f"1 row: 1 without a label, the first at {tmp_path}/x.txt:3")


def test_texts_without_labels_are_counted(tmp_path: Path) -> None:
    result = texts(tmp_path / "x.jsonl", '{"text": "a b"}\n{"text": "b c"}\n')
    assert (result.is_labeled, result.error, result.size) == (False, None, 2)


def test_counts_of_texts_are_those_of_plain_python(tmp_path: Path) -> None:
    choose = random.Random(0).choice
    pairs = [
        (choose("XYZ"), " ".join(choose(["so", "it", "is"]) for _ in range(choose(range(3, 9))))) for _ in range(99)
    ]
    result = texts(tmp_path / "x.csv", "".join(f'{label},"{text}"\n' for label, text in pairs))
    assert result.labels == Counter(label for label, _ in pairs)
    assert result.words == Counter(word for _, text in pairs for word in text.split())
    assert result.lengths[0].counts == Counter(len(text.split()) for _, text in pairs)
    assert result.repeats.num_repeats == 99 - len({text for _, text in pairs})


@given(st.lists(st.text(st.sampled_from("ab \né\0"), min_size=1, max_size=20), min_size=1, max_size=3))
def test_counts_of_plain_text_are_those_of_plain_python(
    tmp_path_factory: pytest.TempPathFactory, parts: list[str]
) -> None:
    folder = tmp_path_factory.mktemp("plain")
    for number, part in enumerate(parts):
        (folder / f"{number}.txt").write_text(part, encoding="utf-8", newline="")
    result = summarize(folder, format="text")
    assert isinstance(result, PlainSummary)
    lines = [line for part in parts for line in part.removesuffix("\n").split("\n")]
    assert result.line_lengths.counts == Counter(map(len, lines))
    assert result.words == Counter(word for part in parts for word in part.split())
    assert (result.num_characters, result.characters) == (sum(map(len, parts)), set("".join(parts)))
    num_nul = result.nul_characters.count
    assert (result.line_lengths.longest[0], num_nul) == (max(map(len, lines)), "".join(parts).count("\0"))


def test_places_of_the_longest_line_and_of_nul_characters(tmp_path: Path) -> None:
    (tmp_path / "1.txt").write_text("a\nbb\r\n", newline="")
    (tmp_path / "2.txt").write_text("a\nb\n\0 cc\n")
    result = summarize(tmp_path)
    assert isinstance(result, PlainSummary)
    length, line = result.line_lengths.longest
    assert (str(line), length) == (f"{tmp_path}/2.txt:3", 4)
    assert str(result.nul_characters.first) == f"{tmp_path}/2.txt:3"
    assert result.line_lengths.counts == {1: 3, 2: 1, 4: 1}


def test_counts_do_not_depend_on_the_size_of_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ensue.data.decoding.BLOCK_BYTES", 7)
    text = "one two\r\n\r\nthree four five\r\nsix\n" * 5
    (tmp_path / "x.txt").write_text(text, newline="")
    result = summarize(tmp_path / "x.txt", format="text")
    assert isinstance(result, PlainSummary)
    assert result.words == Counter(text.split())
    assert result.line_lengths.counts == {7: 5, 0: 5, 15: 5, 3: 5}


def test_empty_files_and_unknown_columns_and_encodings_are_refused(tmp_path: Path) -> None:
    (tmp_path / "empty.conll").write_bytes(b"")
    with pytest.raises(DataError, match=r"empty.conll: the text is empty"):
        summarize(tmp_path / "empty.conll")
    with pytest.raises(DataError, match='did you mean "empty'):
        summarize(tmp_path / "empty.conl")
    (tmp_path / "plain.txt").write_text("so it is\n")
    with pytest.raises(DataError, match='no column "2": the data are taken for plain text'):
        summarize(tmp_path / "plain.txt", labels="2")
    with pytest.raises(DataError, match='unknown encoding "utf-9"'):
        summarize(tmp_path / "plain.txt", encoding="utf-9")


def test_words_are_split_as_in_the_recipes() -> None:
    assert LabelingData().splitter == SENTENCE_SPLITTER
    assert ClassificationData().splitter == TEXT_SPLITTER
