"""Notes of `ensue data` on suspicious labels, and on texts that are missing or very long."""

import tracemalloc
from collections import Counter
from pathlib import Path
from random import Random

import pytest

from command_fixtures import Ensue
from ensue.extensions.surveying.counts import FileLine
from ensue.extensions.surveying.oddities import find_similar_labels, is_null, label_notes


@pytest.mark.parametrize(
    ("rare", "frequent"),
    [
        ("STÖRUNG", "Störung"), ("Stoerung", "Störung"), ("Storung", "Störung"), ("Störun", "Störung"),
        ("Störungg", "Störung"), ("Störumg", "Störung"), ("Störung.", "Störung"), ("Categorie", "Catégorie"),
        ("not-urgent", "not urgent"), ("Straße", "Strasse"), ("ｗｏｒｌｄ", "world"),
    ],
)  # fmt: skip
def test_misspelled_labels_are_similar(rare: str, frequent: str) -> None:
    assert find_similar_labels(Counter({frequent: 200, rare: 16})) == {rare: frequent}


@pytest.mark.parametrize(
    ("rare", "frequent"),
    [("Class1", "Class2"), ("cat", "car"), ("B-PER", "I-PER"), ("news", "world"), ("C#", "C++"), ("x" * 10**6, "y")],
)
def test_different_labels_are_not_similar(rare: str, frequent: str) -> None:
    assert find_similar_labels(Counter({frequent: 200, rare: 16})) == {}
    assert find_similar_labels(Counter({"falling": 200, "calling": 150})) == {}  # neither is rare


def deletions(label: str) -> set[str]:
    return {label, *(label[:index] + label[index + 1 :] for index in range(len(label)))}


@pytest.mark.parametrize("seed", range(5))
def test_similar_labels_are_those_of_a_comparison_of_all_pairs(seed: int) -> None:
    random = Random(seed)
    labels = {"".join(random.choices("abC", k=random.randint(4, 6))) for _ in range(300)}
    counts = Counter({label: random.choice([1, 3, 9, 10, 40, 99, 100, 400]) for label in labels})
    order = sorted(counts, key=lambda label: (-counts[label], label))
    expected = {
        label
        for number, label in enumerate(order)
        for other in order[:number]
        if other.lower() == label.lower()
        or (
            counts[other] >= 10 * counts[label] and min(len(label), len(other)) >= 5
            and not (label.isupper() or other.isupper()) and deletions(label.lower()) & deletions(other.lower())
        )
    }  # fmt: skip
    assert find_similar_labels(counts).keys() == expected
    assert len(expected) > 50


def test_many_rare_labels_take_little_memory() -> None:
    random = Random(0)
    counts = Counter({"".join(random.choices("abcdefgh", k=60)): 1 for _ in range(2000)})
    tracemalloc.start()
    try:
        assert find_similar_labels(counts) == {}
        assert tracemalloc.get_traced_memory()[1] < 4 << 20  # 60 shorter forms of each label would take 16 MiB
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(("text", "answer"), [("NaN", True), (" NULL ", True), ("None", True), ("none", False)])
def test_names_of_missing_values_are_recognized(text: str, answer: bool) -> None:
    assert is_null(text) is answer


def test_notes_name_the_first_line() -> None:
    counts = Counter({"pos": 90, "neg, The": 20, "NULL": 3})
    first = {label: FileLine("x.tsv", line) for line, label in enumerate(counts, 1)}
    assert list(label_notes(counts, first, "texts", separator_remedy="S", are_words=False)) == [
        "1 label has a comma or another separator inside: neg, The 20; the first at x.tsv:2; S",
        "1 label has a blank inside: neg, The 20; the first at x.tsv:2",
        "1 label stands for a missing value: NULL 3; the first at x.tsv:3",
        "1 label has fewer than 5 texts: NULL 3; the first at x.tsv:3",
    ]


def test_the_whole_file_is_counted(ensue: Ensue, tmp_path: Path) -> None:
    rows = [f"{'pos' if n % 2 else 'neg'};a good film {n} of many\n" for n in range(60)]
    rows[6:6] = [";\n", "neg;\n", ";text\n", f"neg;{'long ' * 900}\n", "neg;nan\n"]
    path = tmp_path / "x.csv"
    path.write_text("label;text\n" + "".join(rows))
    result = ensue("data", path)
    assert f"incomplete  3 rows: 2 without a label, 1 without a text, the first at {path}:8\n" in result.out
    assert f"texts that stand for a missing value, such as nan: 1, the first at {path}:12\n" in result.out
    assert (
        f"the longest text has 900 words ({path}:11), and 95 % have at most 6; --set data.max_tokens=200 truncates it"
        in result.out
    )
    assert result.out.endswith("--set data.incomplete=skip --out classifier\n")


def test_a_file_without_blank_lines_is_one_sentence(ensue: Ensue, tmp_path: Path) -> None:
    (tmp_path / "x.conll").write_text("Ann\tB-PER\nleft\tO\n" * 150)
    assert (
        "note: all 300 words are one sentence; a blank line ends a sentence\n"
        in ensue("data", tmp_path / "x.conll").out
    )


@pytest.mark.parametrize("labels", ["B I O", "B_PER I_PER O", "PER-B PER-I O", "B-PER I-PER 0", "B:PER I:PER O"])
def test_plain_labels_that_look_like_spans_are_noted(labels: str, ensue: Ensue, tmp_path: Path) -> None:
    path = tmp_path / "x.conll"
    path.write_text("".join(f"w{n}\t{label}\n" for n, label in enumerate(labels.split())) + "\n")
    path.write_text(path.read_text() * 40)
    assert "note: plain labels that look like spans: " in ensue("data", path).out


def test_a_comma_after_a_label_of_fasttext_is_noted(ensue: Ensue, tmp_path: Path) -> None:
    (tmp_path / "x.txt").write_text("".join(f"__label__{n % 2},The film {n}\n" for n in range(40)))
    output = ensue("data", tmp_path / "x.txt").out
    assert f"inside: 0,The 20, 1,The 20; the first at {tmp_path}/x.txt:1; a blank ends a label\n" in output
