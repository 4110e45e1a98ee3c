"""Running text of a treebank with labels of its words and sentences, and back."""

import random
import time

import pytest

from ensue.data.lines import Lines
from ensue.data.sentences.conllu import Conllu, pieces
from ensue.data.sentences.running_text import MAX_CHARACTERS, RunningText, cut_sentences, cut_text, running_text
from ensue.data.sentences.sentence import Sentence
from ensue.errors import DataError

EMPTY = "\t_" * 7
TREEBANK = f"""# newdoc
# newpar
1	Il	_{EMPTY}
2-3	du	_{EMPTY}
2	de	_{EMPTY}
3	le	_{EMPTY}
4	1 000	_{EMPTY[:-2]}\tSpaceAfter=No
5	.	_{EMPTY}

1-2	don't	_{EMPTY[:-2]}\tSpaceAfter=No
1	do	_{EMPTY}
2	n't	_{EMPTY}
3	!	_{EMPTY}

# newpar
1	Bye	_{EMPTY}

""".replace("\t_" + EMPTY, EMPTY + "\t_")
FORMAT = RunningText()


def read(text: str) -> list[Sentence]:
    return list(FORMAT.read(Lines([text], "x")))


def tokens(text: str) -> list[list[tuple[str, tuple[str, ...]]]]:
    result = Conllu().read(Lines([text], "y"))
    return [[(piece.form, tuple(piece.words)) for piece in pieces(sentence.source.text)] for sentence in result]


def test_labels_of_a_small_treebank_are_correct() -> None:
    first, second = read(TREEBANK)
    assert "".join(first.words) == "Il du 1 000. don't!"
    labels = dict(enumerate(FORMAT.labels(first)))
    boundaries = {position: label for position, label in labels.items() if label != "inside"}
    assert boundaries == {
        1: "token", 4: "token lower-0+-1+e =le", 7: "blank", 10: "token", 11: "sentence", 14: "word", 17: "token",
        18: "sentence",
    }  # fmt: skip
    assert ("".join(second.words), FORMAT.labels(second)) == ("Bye", ("inside", "inside", "sentence"))
    assert running_text(list(Conllu().read(Lines([TREEBANK], "")))) == "Il du 1 000. don't!\n\nBye\n"


def test_the_labels_cut_the_text_into_the_treebank() -> None:
    output = "".join(FORMAT.write(sentence, FORMAT.labels(sentence)) for sentence in read(TREEBANK))
    assert tokens(output) == tokens(TREEBANK)
    lines = output.split("\n")
    assert lines[0] == "# text = Il du 1 000."
    assert "2-3\tdu" + EMPTY + "\t_" in lines
    assert "4\t1 000" + EMPTY + "\tSpaceAfter=No" in lines
    assert "1-2\tdon't" + EMPTY + "\tSpaceAfter=No" in lines


@pytest.mark.slow
def test_a_token_of_many_words_is_read_in_little_time() -> None:
    start, words = time.process_time(), ["ab"] * 100_000
    rows = [
        f"1-{len(words)}\t{''.join(words)}\t_{EMPTY}",
        *(f"{n}\t{word}\t_{EMPTY}" for n, word in enumerate(words, 1)),
    ]
    (sentence,) = read("\n".join([*rows, ""]))
    assert sentence.columns["cut"] == (*("inside", "word") * (len(words) - 1), "inside", "sentence")
    assert time.process_time() - start < 20


@pytest.mark.slow
def test_a_long_paragraph_is_read_in_parts_in_linear_time() -> None:
    start, result = time.process_time(), 0
    chunks = iter(["This is a sentence of a corpus. 😀\n"] * 160_000)
    sentences = FORMAT.read(Lines(chunks, "x"))
    assert len(next(sentences).words) + len(next(chunks)) > 1_000
    for sentence in sentences:
        assert len(sentence.words) <= 2_000
        assert (sentence.line, sentence.document) == (1, 0)
        result += len(sentence.words)
    assert result > 5_000_000
    assert time.process_time() - start < 10


def test_a_line_of_wide_blanks_is_skipped() -> None:
    result = read("a\n\n\u3000\n\nb\n")
    assert [("".join(sentence.words), sentence.document) for sentence in result] == [("a", 0), ("b", 1)]


def test_any_labels_keep_every_character() -> None:
    choose = random.Random(0)
    for _ in range(200):
        text = " ".join("".join(choose.choices("ab .é", k=30)).split())
        labels = choose.choices(["inside", "blank", "word", "token", "sentence", "nonsense"], k=len(text))
        tokens = [token for sentence in cut_text(text, labels) for token in sentence]
        assert all(token.form == text[token.start : token.end] for token in tokens)
        assert "".join(token.form for token in tokens).replace(" ", "") == text.replace(" ", "")
        assert not any(token.form[:1].isspace() or not token.form for token in tokens)
        assert all("".join(token.words) == token.form for token in tokens)


def test_words_of_a_cut_sentence_equal_those_of_its_text_in_conllu() -> None:
    choose = random.Random(0)
    kinds = ["inside", "blank", "word", "token", "token lower-0+-1+e =le", "sentence", "sentence upper-0+-0+ =#"]
    for _ in range(50):
        words = tuple("".join(choose.choices("abÉ# .1-\xa0", k=30)).strip() or "a")
        for sentence in cut_sentences(Sentence(words), choose.choices(kinds, k=len(words))):
            (read_again,) = Conllu().read(Lines([sentence.conllu()], ""))
            assert read_again.words == sentence.words


def test_paragraphs_of_raw_text_are_read_and_long_ones_in_parts() -> None:
    first, second = read("One  two\nthree.\n\n\n  Four \t\n")
    assert ("".join(first.words), "".join(second.words)) == ("One two three.", "Four")
    assert (first.document, second.document, second.line) == (0, 1, 4)
    text = "A sentence of some words. " * (3 * MAX_CHARACTERS // 26)
    sentences = read(text)
    assert len({sentence.document for sentence in sentences}) == 1
    assert len(sentences) > 2
    assert all(len(sentence.words) <= MAX_CHARACTERS and sentence.words[-1] == "." for sentence in sentences)
    assert " ".join("".join(sentence.words) for sentence in sentences) == text.strip()
    with pytest.raises(DataError, match="x:4: this is plain text"):
        FORMAT.labels(second)
    unbroken = read("x" * (MAX_CHARACTERS + 5))
    assert [len(sentence.words) for sentence in unbroken] == [MAX_CHARACTERS, 5]
    (cut,) = cut_sentences(unbroken[0], ["inside"] * MAX_CHARACTERS)
    assert cut.conllu().endswith("SpaceAfter=No\n\n")
