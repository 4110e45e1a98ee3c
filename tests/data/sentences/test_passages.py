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

made = st.lists(st.tuples(st.integers(0, 5), st.sampled_from([None, 0, 1, 2]), st.sampled_from("ab")), max_size=12)


def sentence(length: int, document: int | None, file: str) -> Sentence:
    return Sentence(("w",) * length, source=SourceText(file), document=document)


@given(given=made, most=st.integers(0, 8))
def test_passages_are_whole_and_as_long_as_they_may_be(given: list[tuple[int, int | None, str]], most: int) -> None:
    sentences = [sentence(*each) for each in given]
    result = list(passages(sentences, most))
    assert [each for passage in result for each in passage] == sentences
    lengths = [sum(max(1, len(each.words)) for each in passage) for passage in result]
    for passage, length in zip(result, lengths, strict=True):
        places = {(each.source.name, each.document) for each in passage}
        assert len(passage) == 1 or (len(places) == 1 and passage[0].document is not None and length <= most)
    for (before, after), length in zip(pairwise(result), lengths, strict=False):
        together = length + max(1, len(after[0].words)) <= most
        one = (before[-1].source.name, before[-1].document) == (after[0].source.name, after[0].document)
        assert not (most and together and one and after[0].document is not None)


def test_none_means_every_sentence_alone() -> None:
    assert [len(passage) for passage in passages([sentence(0, 0, "a")] * 3, 0)] == [1, 1, 1]


def test_a_stream_is_read_no_further_than_the_next_context() -> None:
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
def test_documents_of_a_format(format: Columns | Conllu | PlainText, text: str, expected: list[list[str]]) -> None:
    rows = [f"1\t{word}" + "\t_" * 8 + "\n" for word in "abc"]
    lines = Lines(text.format(*rows).splitlines(keepends=True), "file")
    result = [[word for each in passage for word in each.words] for passage in passages(format.read(lines), 100)]
    assert result == expected
