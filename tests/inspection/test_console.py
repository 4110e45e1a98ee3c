"""`ensue inspect` between its arguments and the page."""

import io
import sys
from pathlib import Path

import pytest

from ensue.console.inspection import write_inspection
from ensue.errors import EnsueError
from inspection.small import classifier, tagger


def test_a_text_a_pair_and_stdin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "page.html"
    assert write_inspection(tagger(), ["Ann saw London"], out) == out
    assert "<bdi>Ann saw London</bdi>" in out.read_text()
    write_inspection(classifier(pair=True), ["the Sea", "Ann"], out)
    assert "<bdi>the Sea | Ann</bdi>" in out.read_text()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO("été\n".encode())))
    write_inspection(classifier(), ["-"], out)
    assert "<bdi>été</bdi>" in out.read_text(encoding="utf-8")


def test_a_wrong_number_of_texts_is_refused(tmp_path: Path) -> None:
    for pipeline, texts, message in (
        (tagger(), ["a", "b"], "one text; found 2"),
        (classifier(pair=True), ["a"], "two texts; found 1"),
    ):
        with pytest.raises(EnsueError, match=f"the model reads {message}"):
            write_inspection(pipeline, texts, tmp_path / "page.html")
    assert not list(tmp_path.iterdir())
