"""No layer of `ensue.nn` is missing from the table."""

import importlib

import pytest

from ensue.nn import SequenceLayer, Window

from .table import SUBJECTS, concrete_layers


def uncovered() -> set[type[SequenceLayer]]:
    return concrete_layers() - {type(subject.make()) for subject in SUBJECTS}


def test_every_layer_is_in_the_table() -> None:
    assert not uncovered()


def test_a_missing_layer_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    class Forgotten(Window):
        pass

    monkeypatch.setattr(importlib.import_module("ensue.nn.window"), "Forgotten", Forgotten, raising=False)
    assert uncovered() == {Forgotten}
