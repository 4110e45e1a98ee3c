"""Documents in a stream: separators, and cuts at boundaries."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ensue.text.boundaries import last_boundary
from ensue.text.masked_tokens import DocumentStream, MaskedTokenizer
from ensue.text.tokenizers import train_tokenizer

CODERS = {kind: MaskedTokenizer(train_tokenizer(kind, ["a b\nc"], max_size=300)) for kind in ("wordpiece", "bpe")}


@pytest.mark.parametrize(
    ("documents", "sentences", "expected"),
    [("lines", False, "a b | c | a"), ("blank-lines", False, "a b c | a"), ("blank-lines", True, "a b | c # a")],
)
@pytest.mark.parametrize("kind", CODERS)
def test_marks_are_between_documents(kind: str, documents: str, sentences: bool, expected: str) -> None:
    coder = CODERS[kind]
    stream = DocumentStream(coder, documents=documents, sentences=sentences)  # type: ignore[arg-type]
    names = {coder.separator_id: "|", coder.begin_id: "#"}
    ids = stream.encode("a b \nc\r\n \n\na").tolist()
    assert " ".join(names.get(id, coder.symbol(id)) for id in ids).split() == expected.split()


@given(text=st.text(st.sampled_from("ab \n\r\t\x0b"), max_size=30))
@pytest.mark.parametrize("sentences", [False, True])
@pytest.mark.parametrize("kind", CODERS)
def test_a_boundary_changes_no_id(kind: str, sentences: bool, text: str) -> None:
    stream = DocumentStream(CODERS[kind], documents="blank-lines", sentences=sentences)
    cut = last_boundary(text)
    if cut is not None:
        ids = [*stream.encode(text[:cut]), *stream.encode(text[cut:])]
        assert ids == stream.encode(text).tolist()
