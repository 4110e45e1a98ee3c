"""spaCy in a separate environment and process.

The process runs `spacy_tagger.py` for `tagging.py`, or `spacy_few.py` for `few_labels.py` and `few_sentences.py`.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

TAGGER_SCRIPT, FEW_SCRIPT = (str(Path(__file__).with_name(name)) for name in ("spacy_tagger.py", "spacy_few.py"))
ONE_THREAD = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


class SpacyTagger:
    """A tagger of spaCy in a separate process, which is trained unless its model exists. A context manager."""

    def __init__(self, folder: Path, treebank: Mapping[str, Path]) -> None:
        self.python = install(folder / "environment")
        self.folder = folder / fingerprint(treebank)
        if not (self.folder / "training.json").exists():
            self._train(treebank)
        self.training = json.loads((self.folder / "training.json").read_text(encoding="utf-8"))
        command = [self.python, TAGGER_SCRIPT, "serve", self.folder / "model" / "model-best", treebank["test"]]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=ONE_THREAD
        )

    def measure(self, measurement: str) -> dict[str, Any]:
        """Call a method of `Measurements` in spacy_tagger.py."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print(measurement, file=self.process.stdin, flush=True)
        if not (answer := self.process.stdout.readline()):
            raise SystemExit(f"the process of spaCy ended during the measurement: {measurement}")
        result: dict[str, Any] = json.loads(answer)
        return result

    def _train(self, treebank: Mapping[str, Path]) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        for part in ("train", "dev"):
            subprocess.run(
                [self.python, TAGGER_SCRIPT, "convert", treebank[part], self.folder / f"{part}.spacy"], check=True
            )
        choice = ["--lang", "en", "--pipeline", "tagger,morphologizer", "--optimize", "efficiency", "--force"]
        paths = [word for part in ("train", "dev") for word in (f"--paths.{part}", self.folder / f"{part}.spacy")]
        config = self.folder / "config.cfg"
        self._spacy("init", "config", *choice, config)
        started = time.perf_counter()
        processor = self._spacy("train", config, *paths, "--output", self.folder / "model")
        seconds = {"seconds": time.perf_counter() - started, "processor_seconds": processor}
        (self.folder / "training.json").write_text(json.dumps(seconds), encoding="utf-8")

    def _spacy(self, *command: str | Path) -> float:
        """Run a command of spaCy with its output on stderr. Return its processor seconds."""
        process = subprocess.Popen([self.python, "-m", "spacy", *command], stdout=sys.stderr, env=ONE_THREAD)
        _, status, usage = os.wait4(process.pid, 0)
        if status:
            raise SystemExit(f"spacy {command[0]} ended with {status}")
        return usage.ru_utime + usage.ru_stime

    def __enter__(self) -> SpacyTagger:
        return self

    def __exit__(self, *error: object) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


def train_spacy(component: str, train: Iterable[Any], test: Iterable[Any], folder: Path) -> dict[str, Any]:
    """Train spaCy's component `textcat` or `ner` with `spacy_few.py`.

    Args:
        component: The name of the component.
        train: Training examples: a text, or the words of a sentence, with labels.
        test: Test examples.
        folder: A folder for temporary files; the environment of spaCy is the folder `spacy` beside it.

    Returns:
        The predicted labels of the test examples, seconds and bytes.
    """
    folder = Path(tempfile.mkdtemp(dir=folder))
    for name, examples in (("train", train), ("test", test)):
        lines = [json.dumps(example) + "\n" for example in examples]
        (folder / f"{name}.jsonl").write_text("".join(lines), encoding="utf-8")
    files = [folder / "train.jsonl", folder / "test.jsonl", folder]
    command = [install(folder.parent.parent / "spacy"), FEW_SCRIPT, component, *files]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=ONE_THREAD)
    result: dict[str, Any] = json.loads((folder / "answers.json").read_text(encoding="utf-8"))
    return result


def install(environment: Path) -> Path:
    """Install spaCy in an environment unless it is installed, with uv or pip. Return the Python of the environment."""
    python = environment / "bin" / "python"
    import_command = [python, "-c", "import spacy"]
    if python.exists() and subprocess.run(import_command, check=False, stderr=subprocess.DEVNULL).returncode == 0:
        return python
    print(f"installing spaCy in {environment} ...", file=sys.stderr)
    if uv := shutil.which("uv"):
        links = [word for link in os.environ.get("PIP_FIND_LINKS", "").split() for word in ("--find-links", link)]
        subprocess.run([uv, "venv", "--quiet", "--allow-existing", "--python", sys.executable, environment], check=True)
        subprocess.run([uv, "pip", "install", "--quiet", "--python", python, *links, "spacy"], check=True)
    else:
        subprocess.run([sys.executable, "-m", "venv", environment], check=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", "spacy"], check=True)
    return python


def fingerprint(treebank: Mapping[str, Path]) -> str:
    """Return a name of the training data, so that models of different data have different folders."""
    content = hashlib.sha256()
    for part in ("train", "dev"):
        content.update(treebank[part].read_bytes())
    return f"model-{content.hexdigest()[:8]}"
