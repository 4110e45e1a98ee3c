"""Invalid hdf5 files and options of ELMo are refused. test_published_elmo.py tests the conversion."""

import json
from pathlib import Path

import numpy as np
import pytest

import ensue
from ensue.errors import EnsueError
from ensue.extensions.importing.importing import import_run

h5py = pytest.importorskip("h5py", reason="h5py is not installed (pip install ensue[elmo])")
FIXTURE = Path(__file__).resolve().parents[3] / "shared" / "data" / "elmo_fixtures" / "bilm-tf"
OPTIONS = {
    "lstm": {"dim": 4, "projection_dim": 2, "n_layers": 1},
    "char_cnn": {"embedding": {"dim": 3}, "filters": [[1, 2]], "max_characters_per_token": 50},
}


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    (tmp_path / "options.json").write_text(json.dumps(OPTIONS))
    path = tmp_path / "weights.hdf5"
    with h5py.File(path, "w") as file:
        file["char_embed"] = np.zeros((261, 3), "f4")
    return path


def refused(path: Path) -> str:
    with pytest.raises(EnsueError) as caught:
        import_run(path, path.parent / "run")
    assert "\n" not in str(caught.value)
    assert not (path.parent / "run").exists()
    return str(caught.value)


def test_missing_arrays_missing_options_and_other_files_are_refused(weights: Path) -> None:
    assert "array" in refused(weights)
    weights.write_bytes(b"no hdf5")
    assert "not an hdf5 file" in refused(weights)
    (weights.parent / "options.json").unlink()
    assert "no options.json with the sizes" in refused(weights)


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_a_truncated_file_is_refused(weights: Path, share: float) -> None:
    content = weights.read_bytes()
    weights.write_bytes(content[: int(share * len(content))])
    assert "weights.hdf5" in refused(weights)


@pytest.mark.parametrize("storage", ["external", "virtual"])
def test_arrays_in_other_files_are_not_read(weights: Path, storage: str) -> None:
    """Otherwise a file could copy other files of the user into the run, or block on a pipe."""
    secret = weights.parent / "secret"
    secret.write_bytes(bytes(16))
    with h5py.File(weights, "a") as file:
        if storage == "external":
            file.create_dataset("CNN/b_cnn_0", shape=(2,), dtype="f4", external=[(str(secret), 0, 8)])
        else:
            layout = h5py.VirtualLayout((2,), "f4")
            layout[:] = h5py.VirtualSource(str(secret), "x", (2,))
            file.create_virtual_dataset("CNN/b_cnn_0", layout)
    assert "CNN/b_cnn_0: stored in another file" in refused(weights)


def test_deep_groups_are_refused_and_links_are_not_followed(weights: Path) -> None:
    with h5py.File(weights, "a") as file:
        file["loop"] = h5py.SoftLink("/")
        file["elsewhere"] = h5py.ExternalLink("other.hdf5", "/")
    assert "array" in refused(weights)
    with h5py.File(weights, "a") as file:
        file["again"] = file["/"]
    assert "groups nested more than 16 levels deep" in refused(weights)


def test_arrays_that_are_larger_than_the_file_are_refused(weights: Path) -> None:
    with h5py.File(weights, "w") as file:
        file.create_dataset("char_embed", shape=(261, 1 << 40), dtype="f4", chunks=(1, 1 << 10))
    assert "truncated or damaged: arrays of" in refused(weights)


@pytest.mark.slow
@pytest.mark.skipif(not FIXTURE.exists(), reason="needs ../shared/data/elmo_fixtures")
def test_a_published_model_becomes_a_run(tmp_path: Path) -> None:
    import_run(FIXTURE, tmp_path / "run")
    pipeline = ensue.load(tmp_path / "run", device="cpu")
    assert pipeline.layers_of_words([["A", "house", "."]])[0].shape == (pipeline.num_layers, 3, pipeline.d_layers)
