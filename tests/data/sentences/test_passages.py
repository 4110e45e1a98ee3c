"""Passages: consecutive sentences of a document, in a stream, too."""

from collections.abc import Iterator
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ensue.data.lines import Lines
from ensue.data.sentences.columns import Columns
from ensue.data.sentences.conllu import Conllu
from ensue.data.sentences.sentence import Sentence, SourceText, passages
from ensue.data.sentences.source import PlainText

rows = st.lists(st.tuples(st.integers(0, 5), st.sampled_from([None, 0, 1, 2]), st.sampled_from("ab")), max_size=12)


def sentence(length: int, document: int | None, file: str) -> Sentence:
    return Sentence(("w",) * length, source=SourceText(file), document=document)


@given(drawn=rows, max_length=st.integers(0, 8))
def test_passages_are_full_sentences_up_to_the_bound(drawn: list[tuple[int, int | None, str]], max_length: int) -> None:
    sentences = [sentence(*each) for each in drawn]
    result = list(passages(sentences, max_length))
    assert [each for passage in result for each in passage] == sentences
    lengths = [sum(max(1, len(each.words)) for each in passage) for passage in result]
    for passage, length in zip(result, lengths, strict=True):
        documents = {(each.source.name, each.document) for each in passage}
        assert len(passage) == 1 or (len(documents) == 1 and passage[0].document is not None and length <= max_length)
    for (before, after), length in zip(pairwise(result), lengths, strict=False):
        fits = length + max(1, len(after[0].words)) <= max_length
        is_same_document = (before[-1].source.name, before[-1].document) == (after[0].source.name, after[0].document)
        assert not (max_length and fits and is_same_document and after[0].document is not None)


def test_without_a_bound_every_sentence_is_a_passage() -> None:
    assert [len(passage) for passage in passages([sentence(0, 0, "a")] * 3, 0)] == [1, 1, 1]


def test_a_stream_is_read_only_to_the_next_context() -> None:
    read = []

    def stream() -> Iterator[Sentence]:
        for number in range(1000):
            read.append(number)
            yield sentence(2, 0, "a")

    result = passages(stream(), 6)
    assert len(next(result)) == 3
    assert len(read) == 4


@pytest.mark.parametrize(
    ("format", "text", "expected"),
    [
        (Columns(), "-DOCSTART- O\n\na O\n\nb O\n\n-DOCSTART- O\n\nc O\n", [["a", "b"], ["c"]]),
        (Columns(), "a O\n\nb O\n", [["a", "b"]]),
        (Conllu(), "# newdoc\n{}\n# newdoc\n{}\n{}\n", [["a"], ["b", "c"]]),
        (PlainText(), "a\nb\n", [["a"], ["b"]]),
    ],
    ids=["columns", "columns without documents", "CoNLL-U", "running text"],
)
def test_formats_mark_documents(format: Columns | Conllu | PlainText, text: str, expected: list[list[str]]) -> None:
    rows = [f"1\t{word}" + "\t_" * 8 + "\n" for word in "abc"]
    lines = Lines(text.format(*rows).splitlines(keepends=True), "file")
    result = [[word for each in passage for word in each.words] for passage in passages(format.read(lines), 100)]
    assert result == expected
