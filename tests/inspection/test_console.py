"""`ensue inspect`: arguments, and the page that it writes."""

import io
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from ensue.console import inspection
from ensue.console.inspection import check_same_task, write_inspection
from ensue.errors import EnsueError, RunError
from ensue.notices import Notice
from ensue.tasks import task_entry
from forgetting import forget_notices
from inspection.small import TRANSFORMER, classifier, parsed, tagger


def test_a_text_a_pair_and_stdin_are_inspected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "page.html"
    assert write_inspection([tagger()], ["Ann saw London"], out) == out
    assert "<bdi>Ann saw London</bdi>" in out.read_text()
    write_inspection([classifier(pair=True)], ["the Sea", "Ann"], out)
    assert "<bdi>the Sea | Ann</bdi>" in out.read_text()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO("été\n".encode())))
    write_inspection([classifier()], ["-"], out)
    assert "<bdi>été</bdi>" in out.read_text(encoding="utf-8")


@pytest.mark.slow
def test_a_file_is_read_with_a_notice(in_tmp_path: None) -> None:
    forget_notices()
    Path("ch.txt").write_text("Ann saw London\n")
    with pytest.warns(Notice, match=r"^ch.txt: reading the text from this file$"):
        write_inspection([tagger()], ["ch.txt"], Path("page.html"))
    assert "<bdi>Ann saw London</bdi>" in Path("page.html").read_text()
    for text in ("Ann " * 2000, "no\0file", "ch"):
        write_inspection([classifier()], [text], Path("page.html"))


def test_a_wrong_number_of_texts_is_refused(tmp_path: Path) -> None:
    for pipeline, texts, message in (
        (tagger(), ["a", "b"], "one text; found 2"),
        (classifier(pair=True), ["a"], "two texts; found 1"),
    ):
        with pytest.raises(EnsueError, match=f"the model reads {message}"):
            write_inspection([pipeline], texts, tmp_path / "page.html")
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_two_models_are_shown_side_by_side(tmp_path: Path) -> None:
    """Sections with equal headings are in one row."""
    out = tmp_path / "page.html"
    write_inspection([tagger(), tagger(head="softmax", model=TRANSFORMER)], ["Ann saw London"], out)
    sides = list(parsed(out.read_text()).all("article"))
    headings = [{next(node.all("h2")).text: node for node in side.all("section")} for side in sides]
    rows = [{text: node.attributes["style"] for text, node in side.items()} for side in headings]
    assert len(rows) == 2
    assert rows[0].keys() - rows[1].keys() == {"Transition scores", "The best paths"}
    assert all(rows[0][heading] == row for heading, row in rows[1].items())
    assert len(set(rows[0].values())) == len(rows[0])
    with pytest.raises(EnsueError, match="different tasks"):
        tagger().inspect("Ann").beside(classifier().inspect("Ann"))


def test_a_run_of_another_task_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inspection, "existing_run", lambda path: path)
    monkeypatch.setattr(inspection, "RunDirectory", lambda path: SimpleNamespace(entry=task_entry(path.name)))
    check_same_task(Path("labeling"), Path("labeling"))
    with pytest.raises(
        RunError, match=r"^classification: a classifier, and labeling is a tagger; expected runs of the same"
    ):
        check_same_task(Path("labeling"), Path("classification"))
