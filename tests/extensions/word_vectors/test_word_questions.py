"""Questions about words in their published formats."""

from pathlib import Path

import pytest

from ensue.data.judgments import Judgment
from ensue.errors import DataError
from ensue.extensions.word_vectors.pipeline import read_questions

HEADS = {
    "bare": "tiger\tcat\t7.35\nbook\tpaper\t7.46\n",
    "WordSim-353": "Word 1,Word 2,Human (mean)\ntiger,cat,7.35\nbook,paper,7.46\n",
    "SimLex-999": "word1\tword2\tPOS\tSimLex999\tconc(w1)\ntiger\tcat\tN\t7.35\t1\nbook\tpaper\tN\t7.46\t2\n",
    "MEN": "tiger cat 7.35\nbook paper 7.46\n",
    "RW": "\ntiger\tcat\t7.35\t7\t8\r\nbook\tpaper\t7.46\t7\t9\r\n",
}


@pytest.mark.parametrize("text", HEADS.values(), ids=HEADS)
def test_pairs_are_read_in_every_published_form(text: str, tmp_path: Path) -> None:
    (tmp_path / "pairs.txt").write_bytes(text.encode())
    pairs = [Judgment(("tiger", "cat"), 7.35, "", "pairs.txt"), Judgment(("book", "paper"), 7.46, "", "pairs.txt")]
    assert read_questions(tmp_path / "pairs.txt") == pairs


def test_analogies_are_read_by_section(tmp_path: Path) -> None:
    (tmp_path / "q.txt").write_text(": capitals\nAthens Greece Oslo Norway\n\n: gram1 x\na b c d\ne f g h\n")
    questions = read_questions(tmp_path / "q.txt")
    assert [(*question.texts, question.section, question.file) for question in questions] == [
        ("Athens", "Greece", "Oslo", "Norway", "capitals", "q.txt"),
        *((*words, "gram1 x", "q.txt") for words in ("abcd", "efgh")),
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("tiger\tcat\t7\nbook\tpaper\n", "q.txt:2: expected two words and their similarity, found 'book"),
        ("tiger\tcat\t7\nbook\tpaper\tnan\n", "q.txt:2: expected two words"),
        ("tiger\tcat\t7\nbook\n", "q.txt:2: expected two words"),
        ("one line of words\n", "expected two words and their similarity, or analogies, found 'one line"),
        (": section\na b c\n", "q.txt:2: expected four words, or a section"),
        ("\n \n", "no question in this file"),
    ],
)
def test_a_line_of_another_form_is_reported_with_its_number(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "q.txt").write_text(text)
    with pytest.raises(DataError) as caught:
        read_questions(tmp_path / "q.txt")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
