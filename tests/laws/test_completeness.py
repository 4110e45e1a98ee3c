"""No layer of `ensue.nn` is missing from the table."""

import importlib
import inspect
import pkgutil

import pytest

import ensue.nn
from ensue.nn import SequenceLayer, Window

from .table import SUBJECTS


def concrete_layers() -> set[type[SequenceLayer]]:
    """Every class in a module of `ensue.nn` that can be made and is a layer."""
    names = [module.name for module in pkgutil.walk_packages(ensue.nn.__path__, "ensue.nn.")]
    classes = {kind for name in names for _, kind in inspect.getmembers(importlib.import_module(name), inspect.isclass)}
    return {kind for kind in classes if issubclass(kind, SequenceLayer) and not inspect.isabstract(kind)}


def uncovered() -> set[type[SequenceLayer]]:
    return concrete_layers() - {type(subject.make()) for subject in SUBJECTS}


def test_every_layer_is_in_the_table() -> None:
    assert not uncovered()


def test_a_missing_layer_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    class Forgotten(Window):
        pass

    monkeypatch.setattr(importlib.import_module("ensue.nn.window"), "Forgotten", Forgotten, raising=False)
    assert uncovered() == {Forgotten}
