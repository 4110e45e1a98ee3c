"""`ensue gradients`: a picture and a table of how far gradients reach back."""

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
def test_the_encoders_that_are_there_by_default(ensue: Ensue) -> None:
    said = ensue("gradients", *SMALL[:2], "--steps", 0, *SMALL[4:]).succeeded()
    rows = [line.split() for line in said.out.splitlines()]
    assert [row[0] for row in rows] == ["encoder", "elman", "lstm", "gru", "clockwork", "mingru"]
    assert all(float(row[1]) > 0 and row[2:] == ["-", "-", "-"] for row in rows[1:])
    assert said.err == "wrote gradients.png\n"
    assert Path("gradients.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_the_same_seed_says_the_same_again(ensue: Ensue) -> None:
    command = ("gradients", "gru", "elman", "gru", *SMALL, "--json", "--out", "a.svg")
    first, again = ensue(*command, "--seed", 3), ensue(*command, "--seed", 3)
    assert first.out == again.out != ensue(*command, "--seed", 4).out
    found = json.loads(first.out)
    assert (found["positions"], found["steps"], found["seed"], found["d_model"]) == (6, 2, 3, 8)
    assert found["picture"] == "a.svg"
    assert list(found["encoders"]) == ["gru", "elman"]
    reach = found["encoders"]["gru"]
    assert len(reach["untrained"]) == len(reach["trained"]) == 9
    assert reach["untrained"] != reach["trained"]
    assert 0 <= reach["accuracy"] <= 1


@pytest.mark.slow
def test_what_is_shown_of_training(ensue: Ensue) -> None:
    said = ensue("gradients", "gru", *SMALL)
    (row,) = [line.split() for line in said.out.splitlines()[1:]]
    found = json.loads(ensue("gradients", "gru", *SMALL, "--json").out)["encoders"]["gru"]
    shares = [found[when][0] / found[when][-1] for when in ("untrained", "trained")]
    assert row == ["gru", *(f"{share:.1e}" for share in shares), f"{found['loss']:.3f}", f"{found['accuracy']:.3f}"]
    progress, wrote = said.err.splitlines()
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
def test_bad_input(refused: Callable[..., str], arguments: list[object], message: str) -> None:
    assert refused("gradients", *arguments).startswith(message)
    assert not list(Path().iterdir())


@pytest.mark.slow
def test_ctrl_c(ensue: Ensue, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(ProgressLine, "show", interrupted)
    said = ensue("gradients", "elman", *SMALL)
    assert (said.status, said.out, said.err) == (130, "", "")
    assert not list(Path().iterdir())


@pytest.mark.slow
def test_a_picture_needs_no_backend(tmp_path: Path) -> None:
    """As in Jupyter's environment, whose backend is a package that may not be there."""
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
