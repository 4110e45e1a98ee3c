"""`ensue gradients`: a table and a picture of the norms of gradients by position."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from command_fixtures import Ensue
from ensue.console.reporter import ProgressLine

pytestmark = pytest.mark.usefixtures("in_tmp_path")

SMALL = ("--positions", 6, "--steps", 2, "--d-model", 8)


@pytest.mark.slow
def test_the_default_encoders_are_five_recurrent_ones(ensue: Ensue) -> None:
    result = ensue("gradients", *SMALL[:2], "--steps", 0, *SMALL[4:]).succeeded()
    rows = [line.split() for line in result.out.splitlines()]
    assert [row[0] for row in rows] == ["encoder", "elman", "lstm", "gru", "clockwork", "mingru"]
    assert all(float(row[1]) > 0 and row[2:] == ["-", "-", "-"] for row in rows[1:])
    assert result.err == "wrote gradients.png\n"
    assert Path("gradients.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_the_same_seed_gives_the_same_output(ensue: Ensue) -> None:
    command = ("gradients", "gru", "elman", "gru", *SMALL, "--json", "--out", "a.svg")
    first, again = ensue(*command, "--seed", 3), ensue(*command, "--seed", 3)
    assert first.out == again.out != ensue(*command, "--seed", 4).out
    document = json.loads(first.out)
    assert (document["positions"], document["steps"], document["seed"], document["d_model"]) == (6, 2, 3, 8)
    assert document["picture"] == "a.svg"
    assert list(document["encoders"]) == ["gru", "elman"]
    reach = document["encoders"]["gru"]
    assert len(reach["untrained"]) == len(reach["trained"]) == 9
    assert reach["untrained"] != reach["trained"]
    assert 0 <= reach["accuracy"] <= 1


@pytest.mark.slow
def test_the_table_and_the_progress_show_the_result_of_training(ensue: Ensue) -> None:
    result = ensue("gradients", "gru", *SMALL)
    (row,) = [line.split() for line in result.out.splitlines()[1:]]
    document = json.loads(ensue("gradients", "gru", *SMALL, "--json").out)["encoders"]["gru"]
    shares = [document[when][0] / document[when][-1] for when in ("untrained", "trained")]
    assert row == [
        "gru",
        *(f"{share:.1e}" for share in shares),
        f"{document['loss']:.3f}",
        f"{document['accuracy']:.3f}",
    ]
    progress, wrote = result.err.splitlines()
    assert progress.startswith("gru: 2 steps in ")
    assert progress.endswith(f" seconds, loss {row[3]}, accuracy {row[4]}")
    assert wrote == "wrote gradients.png"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["lsmt"], 'no encoder "lsmt"; did you mean "lstm"?'),
        (["elman", "window"], 'the encoder "window" has no recurrent state'),
        (["none"], 'the encoder "none" has no recurrent state'),
        (["clockwork", "--d-model", 12], "clockwork has d_model 12, which is not divisible"),
        (["--out", "a.pgn"], 'a.pgn: expected a picture, .png or .svg; did you mean ".png"?'),
        (["--out", "a"], "a: expected a picture, .png or .svg"),
        (["--out", "no/a.png"], "no/a.png: no folder no"),
        (["--positions", 0], "Invalid value for '--positions'"),
        (["--steps", -1], "Invalid value for '--steps'"),
        (["--seed", -1], "Invalid value for '--seed'"),
        (["--d-model", 0], "Invalid value for '--d-model'"),
    ],
)
def test_invalid_arguments_are_refused(refused: Callable[..., str], arguments: list[object], message: str) -> None:
    assert refused("gradients", *arguments).startswith(message)
    assert not list(Path().iterdir())


@pytest.mark.slow
def test_ctrl_c_ends_with_status_130_without_a_picture(ensue: Ensue, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(ProgressLine, "show", interrupted)
    result = ensue("gradients", "elman", *SMALL)
    assert (result.status, result.out, result.err) == (130, "", "")
    assert not list(Path().iterdir())


@pytest.mark.slow
def test_a_picture_needs_no_backend(tmp_path: Path) -> None:
    """In Jupyter's environment, MPLBACKEND names a package that may be missing."""
    script = """if True:
        from pathlib import Path
        from ensue.runs.pictures import picture
        with picture(Path("a.png"), (1, 1)) as figure:
            figure.text(0, 0, "a")
        import matplotlib, os
        assert os.environ["MPLBACKEND"] == "none-such"
    """
    environment = {**os.environ, "MPLBACKEND": "none-such"}
    subprocess.run([sys.executable, "-c", script], cwd=tmp_path, env=environment, check=True)
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
