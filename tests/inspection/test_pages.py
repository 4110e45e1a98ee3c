"""Pages as trees: their numbers equal those of the view, and any text gives a valid page."""

import re
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ensue.data.sentences.sentence import Surface
from ensue.errors import EnsueError
from ensue.inspection import Inspection
from ensue.inspection.drawing import WordColumns, plot
from ensue.inspection.page import clip, decimal, escape_text, format_probability, reveal, signed
from ensue.inspection.texts import Mark, ShownText, Weight, labeled_text, weighted_text
from ensue.tasks.labeling import page as tagging
from ensue.tasks.labeling.page import TaggerView
from ensue.text.labels import Classes, Labels
from inspection.small import HARD, PLAIN, TRANSFORMER, Node, classifier, number, parsed, tagger
from training.tiny import some_slow

TEXT = "Ann Lee saw the Sea of London ."
LETTERS = {"d_words": 3, "characters": "cnn", "d_character": 4, "d_characters": 6}


def tagged(pipeline, text=TEXT) -> tuple[TaggerView, Node]:  # type: ignore[no-untyped-def]
    inspection = pipeline.inspect(text)
    assert isinstance(inspection.view, TaggerView)
    return inspection.view, parsed(inspection.page)


@cache
def usual() -> tuple[TaggerView, Node]:
    return tagged(tagger())


@pytest.mark.sampled(1)
@pytest.mark.parametrize("head", ["crf", "viterbi", "softmax"])
def test_emissions_and_probabilities_are_on_the_page(head: str) -> None:
    view, page = tagged(tagger(head=head))
    numbers_of_cells = {}
    for title in page.section("Emission").titles():
        if cells := re.fullmatch(r"(.+) · (.+)\nemission (.+)\nprobability (.+)", title):
            numbers_of_cells[cells[1], cells[2]] = number(cells[3]), float(cells[4])
    assert len(numbers_of_cells) == 8 * 9
    for t, word in enumerate(view.words):
        for k, tag in enumerate(view.tags):
            assert numbers_of_cells[word, tag][0] == pytest.approx(view.emissions[t, k], abs=5.1e-5)
            assert numbers_of_cells[word, tag][1] == pytest.approx(view.marginals[t, k], abs=5.1e-5)


def test_the_path_is_drawn_through_the_cells_of_its_tags() -> None:
    """Each frame is on the cell whose title has the tag."""
    view, page = usual()
    section = page.section("Emission")
    places = {
        (cell.attributes["x"], cell.attributes["y"]): cell.text.split("\n")[0]
        for cell in section.all("rect")
        if " · " in cell.text
    }
    frames = [places[frame.attributes["x"], frame.attributes["y"]] for frame in section.all("rect", "path")]
    tags = [view.tags[tag] for tag in view.path]
    assert frames == [f"{word} · {tag}" for word, tag in zip(view.words, tags, strict=True)]
    assert len(list(section.all("path", "path"))) == len(tags) - 1


def test_probabilities_of_the_tag_and_the_second_best_are_on_the_page() -> None:
    view, page = usual()
    groups = list(page.section("Emission").all("g"))
    for t, group in enumerate(groups):
        *_, tag_probability, second, probability = [text.text for text in group.all("text")]
        order = np.argsort(-view.marginals[t]).tolist()
        order.remove(int(view.path[t]))
        assert tag_probability == format_probability(float(view.marginals[t, view.path[t]]))
        assert (second, probability) == (view.tags[order[0]], format_probability(float(view.marginals[t, order[0]])))
    assert len(groups) == 8


@pytest.mark.sampled(1)
@pytest.mark.parametrize("head", ["crf", "viterbi"])
def test_transitions_are_on_the_page(head: str) -> None:
    view, page = tagged(tagger(head=head))
    assert view.tables is not None
    titles = [title.split("\n") for title in page.section("Transition").titles()]
    scores = {tuple(pair.split(" → ")): value for pair, value in titles}
    assert len(scores) == 9 * 9 + 9 + 9
    ids = {tag: id for id, tag in enumerate(view.tags)}
    start, pairs, end = view.tables
    for (before, after), value in scores.items():
        if before == "start":
            expected = start[ids[after]]
        else:
            expected = end[ids[before]] if after == "end" else pairs[ids[before], ids[after]]
        if np.isinf(expected):
            assert value == "illegal"
        else:
            assert number(value) == pytest.approx(expected, abs=5.1e-5)
    assert sum(value == "illegal" for value in scores.values()) == int(
        sum(np.isinf(table).sum() for table in view.tables)
    )


def test_best_paths_are_on_the_page() -> None:
    view, page = usual()
    rows = list(page.section("The best paths").all("tr"))[1:]
    assert len(rows) == 5
    for row, path in zip(rows, view.paths, strict=True):
        cells = [cell.text for cell in row.all("td")]
        assert cells[1] == format_probability(path.probability)
        assert number(cells[3]) == pytest.approx(path.score, abs=5.1e-3)
        assert number(cells[4]) + number(cells[5]) == pytest.approx(path.score, abs=1.1e-2)
        differing = [cell.text for cell in row.all("span", "part")]
        assert differing == [
            f"{word} {view.tags[a]} → {view.tags[b]}"
            for word, a, b in zip(view.words, view.paths[0].tags, path.tags, strict=True)
            if a != b
        ]


def test_features_of_words_are_on_the_page() -> None:
    view, page = usual()
    rows = list(page.section("Word by word").all("tr"))[1:]
    assert len(rows) == len(view.words)
    for row, parts, effects in zip(rows, view.parts, view.effects, strict=True):
        boxes = list(row.all("span", "part"))
        assert [next(box.all("bdi")).text for box in boxes] == [part.text for part in parts]
        for box, part, effect in zip(boxes, parts, effects, strict=True):
            match = re.search(r"norm (\S+)\n.* of \S+ (\S+), P\(.*\) = (\S+), tag (.+)$", box.attributes["title"] or "")
            assert match
            assert float(match[1]) == pytest.approx(part.norm, abs=5.1e-5)
            assert number(match[2]) == pytest.approx(-effect.emission, abs=5.1e-5)
            assert float(match[3]) == pytest.approx(effect.probability, abs=5.1e-5)
            assert match[4] == view.tags[effect.tag]
            assert ("unread" in (box.attributes["class"] or "")) == (not part.is_known)


def test_letters_gates_and_attention_are_on_the_page() -> None:
    view, page = tagged(tagger(features=LETTERS))
    letters = page.section("Letter by letter")
    counts = [number(title.rsplit(" ", 1)[1]) for title in letters.titles() if ", maxima: " in title]
    assert counts == [count for characters in view.characters for count in characters.traces["maxima"]]
    lines = [title.split("\n") for title in page.section("Inside").titles()]
    assert len(lines) == 2 * len(view.words)
    for t, (word, *told_lines) in enumerate(lines[: len(view.words)]):
        assert word == view.words[t]
        means = {name: float(value) for name, value in (line.rsplit(" ", 1) for line in told_lines)}
        assert means == pytest.approx({name: values[t] for name, values in view.traces[0].means.items()}, abs=5.1e-5)
    view, page = tagged(tagger(model=TRANSFORMER))
    squares = list(page.section("Inside").all("svg"))[1::2]
    assert len(squares) == 4
    weights = [float(cell.text.rsplit(" ", 1)[1]) for cell in squares[3].all("rect", "much")]
    assert view.attention is not None
    expected = view.attention[1].weights[1]
    assert weights == pytest.approx(expected[expected >= 0.02].tolist(), abs=5.1e-5)


def test_the_view_of_a_classifier_is_on_the_page() -> None:
    inspection = classifier(pooling=("attention", "max")).inspect(TEXT)
    (view,), page = inspection.view, parsed(inspection.page)  # type: ignore[misc]
    bars = {
        row.text[: -len(format_probability(p))]: p
        for row in page.section("Labels").all("tr")
        for p in [float(cell.attributes["title"] or 0) for cell in row.all("td") if "title" in cell.attributes]
    }
    assert bars == pytest.approx(
        dict(zip(["good", "bad", "so-so"], view.probabilities.tolist(), strict=True)), abs=1e-6
    )
    words = list(page.section("The effect of each word").all("span", "w"))
    assert [word.text for word in words] == list(view.words)
    for word, contribution in zip(words, view.contributions, strict=True):
        match = re.search(r"= (\S+), log-odds (\S+)$", word.attributes["title"] or "")
        assert match
        assert float(match[1]) == pytest.approx(contribution.probability, abs=5.1e-5)
        assert number(match[2]) == pytest.approx(-contribution.log_odds, abs=5.1e-5)
    for heading, weights in (("Attention", view.attention), ("Max", view.maxima)):
        titles = [word.attributes["title"] or "" for word in page.section(heading).all("span", "w")]
        told_weights = [float(title.rsplit(" ", 2)[1]) / 100 for title in titles]
        assert told_weights == pytest.approx(weights.tolist(), abs=1e-4)


def test_a_pair_and_several_labels_are_on_the_page() -> None:
    classes = Classes(["<i>", "b"], multiple=True, threshold=0.25)
    inspection = classifier(pair=True, classes=classes).inspect(("the Sea", "Ann saw"))
    page = parsed(inspection.page)
    sides = page.section("The effect of each word")
    assert [side.text for side in next(sides.all("div", "sides")).all("div", "text")] == ["the Sea", "Ann saw"]
    assert "at least 0.25" in page.section("Labels").text
    assert [heading.text[:11] for heading in page.section("Inside").all("h3")] == ["first text,"] * 2 + [
        "second text"
    ] * 2
    marks = [node.attributes["data-t"] for node in sides.all("span", "w")]
    assert marks == ["0-0", "0-1", "1-0", "1-1"]


@pytest.mark.sampled(1)
@pytest.mark.parametrize("text", HARD)
def test_any_text_gives_a_valid_page(text: str) -> None:
    odd = Labels(["<u>&", '"x"'], scheme=None, tag_scheme=None)
    for pipeline in (tagger(labels=odd, features=LETTERS), tagger(labels=odd, model=TRANSFORMER)):
        inspection = pipeline.inspect(text)
        inspection.page.encode("utf-8")
        page = parsed(inspection.page)
        assert len(page.programs()) == 1
        shown = next(page.section("The sentence").all("div", "text"))
        words_on_page = "".join(node.text for node in shown.all("span", "w"))
        assert words_on_page == re.sub("[\x00\x07\ud800\uffff]", "\ufffd", text).replace(" ", "")
        assert {label.text for label in shown.all("sub")} <= {"<u>&", '"x"'}
    page = parsed(classifier().inspect(text).page)
    shown = next(page.section("The effect of each word").all("div", "text"))
    assert shown.text == re.sub("[\x00\x07\ud800\uffff]", "\ufffd", text)
    assert shown.attributes["dir"] == "auto"


@given(st.lists(st.text(min_size=1, max_size=12), min_size=1, max_size=6))
@example(["<", "&lt;", "'\""])
def test_a_text_is_unchanged_on_the_page(words: list[str]) -> None:
    """`html.parser` reads the text of the page, except a carriage return, which documents cannot contain."""
    surface = Surface.of(words)
    clean = parsed(escape_text(surface.text)).text
    marks = [Mark(0, 1, "<x>")]
    labeled = parsed(labeled_text(ShownText(surface.text, surface.offsets, marks), {"<x>": "#fff"}))
    assert labeled.text.replace("<x>", "", 1) == clean or "<x>" in clean
    weights = [Weight(0.5, "for", word) for word in words]
    weighted = parsed(weighted_text(ShownText(surface.text, surface.offsets), weights))
    assert weighted.text == clean
    assert weighted.titles() == [parsed(escape_text(word)).text for word in words]


def test_a_page_makes_no_requests() -> None:
    for inspection in (tagger(features=LETTERS).inspect(TEXT), classifier().inspect(TEXT)):
        page = parsed(inspection.page)
        assert not [node.tag for node in page.all() if {"src", "href", "srcset", "data"} & node.attributes.keys()]
        assert not re.search(r"url\(|@import|https?://|import\(|fetch\(", inspection.page)
        assert any("default-src 'none'" in (node.attributes["content"] or "") for node in list(page.all("meta"))[1:])


def test_a_page_without_content_is_small() -> None:
    """The page includes the library and its license."""
    page = classifier().inspect(TEXT).page
    assert "Permission is hereby granted" in page
    assert len(page.encode()) < 400_000


LONG = " ".join(f"w{n}" for n in range(2_100))


@pytest.mark.slow
@pytest.mark.parametrize("kind", some_slow(["lstm", "transformer"], "transformer"))
def test_long_sentences_are_truncated_with_a_note(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tagging, "MAX_VARIANT_WORDS", 30_000)
    transformer = TRANSFORMER | {"positions": "sinusoidal", "num_layers": 1}
    options = {"features": LETTERS} if kind == "lstm" else {"model": transformer, "labels": PLAIN, "head": "softmax"}
    inspection = tagger(**options).inspect(LONG)
    page = parsed(inspection.page)
    assert "The first 60 of 2,100 words are shown." in page.section("Emission").text
    assert "The first 2,000 of 2,100 words are shown." in page.section("The sentence").text
    assert len(list(page.section("The sentence").all("span", "w"))) == 2_000
    assert len(list(page.all("rect"))) < 6_000
    assert len(inspection.content) < 2_000_000
    if kind == "transformer":
        assert "The text is too long to show its attention." in page.section("Inside").text


@pytest.mark.slow
def test_only_the_most_probable_of_many_tags_are_shown() -> None:
    names = [f"T{n}" for n in range(80)]
    view, page = tagged(tagger(labels=Labels(names, scheme=None, tag_scheme=None)))
    section = page.section("Emission")
    assert "The most probable 25 of 80 tags are shown." in section.text
    rows = [text.text for text in next(section.all("svg", "gutter")).all("text", "end")][:-2]
    assert len(rows) == 25
    assert rows == sorted(rows, key=names.index)
    assert {names[tag] for tag in view.path} <= set(rows)
    assert names[int(view.marginals.max(0).argmax())] in rows
    assert "The most probable 25 of 80 tags are shown." in page.section("Transition").text


def test_unread_text_is_shown_between_words_and_truncated() -> None:
    text = "Ann " + "saw " * 200 + "London"
    inspection = classifier(data={"max_tokens": 2, "keep": "both"}).inspect(text)
    shown = next(parsed(inspection.page).section("The effect of each word").all("div", "text"))
    assert [word.text for word in shown.all("span", "w")] == ["Ann", "London"]
    assert " […] " in shown.text
    assert "words 2 of 202" in parsed(inspection.page).text


def test_an_inspection_can_be_saved_and_displayed(tmp_path: Path) -> None:
    inspection = tagger().inspect(TEXT)
    assert isinstance(inspection, Inspection)
    path = inspection.save(tmp_path / "page.html")
    assert path.read_text(encoding="utf-8") == inspection.page
    assert repr(inspection).startswith(f"Inspection({TEXT!r}, ")
    (frame,) = parsed(inspection._repr_html_()).all("iframe")
    assert frame.attributes["srcdoc"] == inspection.page
    with pytest.raises(EnsueError, match=r"nowhere.page\.html: no folder"):
        inspection.save(tmp_path / "nowhere" / "page.html")


def test_constant_lines_are_drawn() -> None:
    drawn = parsed(plot({"flat": np.full(3, 0.5)}, WordColumns(["a", "b", "c"]), name="x"))
    (path,) = drawn.all("path", "line")
    assert "nan" not in (path.attributes["d"] or "")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (signed(-0.004), "+0.00"), (signed(-1.256), "−1.26"), (decimal(-0.04, 1), "0.0"), (decimal(-1.25, 1), "−1.2"),
        (format_probability(0.0), ".000"), (format_probability(0.0004), "<.001"), (format_probability(0.5), ".500"),
        (format_probability(0.9996), ">.999"),
        (format_probability(1.0), "1.000"), (reveal("\u0301"), "\u25cc\u0301"), (reveal("\u200d"), "200D"),
        (reveal("\ufe0f"), "FE0F"), (reveal("é"), "é"),
        (clip("abcdef", 4), "abc…"), (clip("abcd", 4), "abcd"), (clip("ae\u0301\u0301xyz", 4), "a…"),
        (escape_text("a\x00<"), "a\ufffd&lt;"),
    ],
)  # fmt: skip
def test_marks_and_numbers_are_short(text: str, expected: str) -> None:
    assert text == expected
