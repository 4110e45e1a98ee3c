"""Messages between processes are decoded unchanged, cannot run code, and have only supported types."""

import ast
import math
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import ensue
from ensue.errors import TrainingError
from ensue.models.tagger import SentenceIndices, Tagger
from ensue.training.processes import DistributedGroup, pack_message, unpack_message

PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.lists(inner).map(tuple) | st.dictionaries(st.text(), inner),
    max_leaves=12,
)


@given(PLAIN)
def test_plain_values_are_decoded_unchanged(value: Any) -> None:
    assert repr(unpack_message(pack_message(value))) == repr(value)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64, torch.int64, torch.bool, torch.uint8])
def test_tensors_are_decoded_bit_for_bit(dtype: torch.dtype) -> None:
    full = torch.tensor([[1.5, math.pi, -0.0], [0, 2, 9]]).to(dtype)
    for tensor in (full, full.T, full[1], full[:0], full[0, 0]):
        (decoded, again), *_ = unpack_message(pack_message([(tensor, tensor), 3]))
        assert decoded.dtype == dtype
        assert torch.equal(decoded, tensor)
        assert torch.equal(again, tensor)


def test_arrays_and_numbers_are_decoded_unchanged() -> None:
    value = {"a": np.arange(6).reshape(2, 3)[:, ::-1], "b": [np.zeros((0, 2), np.float32), math.inf, np.float64(0.1)]}
    decoded = unpack_message(pack_message(value))
    np.testing.assert_array_equal(decoded["a"], value["a"])
    assert (decoded["b"][0].shape, decoded["b"][0].dtype, decoded["b"][1:]) == ((0, 2), np.float32, [math.inf, 0.1])
    assert math.isnan(unpack_message(pack_message(math.nan)))


@pytest.mark.parametrize("value", [SentenceIndices(*[torch.zeros(1)] * 3), Path("x"), {1: 2}, {3}, Tagger, b"x"])
def test_other_types_are_refused(value: Any) -> None:
    with pytest.raises(TypeError, match="unsupported type in a message between processes"):
        pack_message([value])


@pytest.mark.parametrize(
    "message",
    [
        b"", b"\0" * 8, pickle.dumps([1]), pack_message([1])[:-3], b"\2" + b"\0" * 7 + b"[1" + pack_message(1)[9:],
        b"\xff" * 20,
    ],
)  # fmt: skip
def test_other_bytes_are_refused_in_one_line(message: bytes) -> None:
    with pytest.raises(TrainingError, match=r"invalid message from another process \(\w+\)"):
        unpack_message(message)


RUNS_CODE = {
    "pickle", "cPickle", "_pickle", "cloudpickle", "dill", "joblib", "shelve", "marshal", "jsonpickle",
}  # fmt: skip
READS_PICKLES = {
    "all_gather_object", "gather_object", "broadcast_object_list", "scatter_object_list", "send_object_list",
    "recv_object_list", "read_pickle", "torch.load", "torch.save",
}  # fmt: skip


def pickles_in(source: str) -> list[str]:
    """Return the names by which a module uses pickles. Only modules that contain such a name are parsed."""
    if not any(each in source for each in (*RUNS_CODE, *READS_PICKLES, "allow_pickle")):
        return []
    names_of_pickles = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = [alias.name for alias in node.names]
            modules = names if isinstance(node, ast.Import) else [node.module or ""]
            names_of_pickles += [name for name in modules if name.split(".")[0] in RUNS_CODE]
            names_of_pickles += [name for name in names if name in READS_PICKLES]
        elif isinstance(node, ast.Attribute):
            names_of_pickles += [name for name in (node.attr, ast.unparse(node)) if name in READS_PICKLES]
        elif isinstance(node, ast.keyword) and node.arg == "allow_pickle":
            names_of_pickles += ["allow_pickle"] if ast.unparse(node.value) != "False" else []
    return names_of_pickles


def test_no_module_uses_pickles() -> None:
    for source in ("import pickle", "from dill import load", "torch.load(x)", "dist.gather_object(x)",
                   "from torch.distributed import gather_object", "np.load(x, allow_pickle=True)"):  # fmt: skip
        assert pickles_in(source), source
    paths = sorted(Path(ensue.__file__).parent.rglob("*.py"))
    assert len(paths) > 400
    assert {str(path): names for path in paths if (names := pickles_in(path.read_text(encoding="utf-8")))} == {}


def test_release_local_ranks_lets_the_others_continue(monkeypatch: pytest.MonkeyPatch) -> None:
    """It releases only the current turn."""

    def refuse(seconds: float) -> None:
        raise InterruptedError

    monkeypatch.setattr("time.sleep", refuse)
    store, both = torch.distributed.HashStore(), []
    for rank in range(2):
        monkeypatch.setenv("LOCAL_RANK", str(rank))
        both.append(DistributedGroup(store, rank, 2, timeout=1))
    first, second = both

    def turn() -> str:
        first.release_local_ranks()
        return second.first_locally(lambda: "second")

    assert first.first_locally(turn) == "second"
    with pytest.raises(InterruptedError):
        first.first_locally(lambda: second.first_locally(lambda: "too early"))
