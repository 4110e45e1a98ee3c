"""The programs of docs/many-runs.md for Ray Data and Spark work, if these are installed."""

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

import ensue
from pages import REPOSITORY, blocks

PROGRAMS = {
    engine: block.text
    for block in blocks(REPOSITORY / "docs" / "many-runs.md", "py")
    for engine in ("ray", "pyspark")
    if f"import {engine}\n" in block.text or f"from {engine}." in block.text
}
pytestmark = pytest.mark.slow


@pytest.mark.parametrize("engine", ["ray", "pyspark"])
def test_the_program_gives_the_labels_of_predict(engine: str, tmp_path: Path) -> None:
    if find_spec(engine) is None:
        pytest.skip(f"{engine} is not installed")
    texts = [f"a {'calm' if number % 3 else 'loud'} film, number {number}" for number in range(60)]
    (tmp_path / "texts.txt").write_text("".join(f"{text}\n" for text in texts))
    (tmp_path / "labeled.tsv").write_text("".join(f"{'good' if 'calm' in text else 'bad'}\t{text}\n" for text in texts))
    settings = {"train.epochs": 2}
    model = ensue.train("classify-bag", train=tmp_path / "labeled.tsv", out=tmp_path / "run", settings=settings)
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable}
    subprocess.run([sys.executable, "-c", PROGRAMS[engine]], cwd=tmp_path, env=environment, check=True, timeout=540)
    lines = [line for path in (tmp_path / "predictions").rglob("*.json") for line in path.read_text().splitlines()]
    predictions = [json.loads(json.loads(line)["prediction"]) for line in lines]
    assert sorted((*prediction["texts"], *prediction["labels"]) for prediction in predictions) == sorted(
        (text, *answer.labels) for text, answer in zip(texts, model.predict(texts), strict=True)
    )
