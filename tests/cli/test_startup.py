"""What a person waits for: a trained model at work imports only what it needs."""

import subprocess
import sys
from pathlib import Path

from training.tiny import words

UNWANTED = {"torch._dynamo", "torch._inductor", "sympy", "matplotlib"}
PROGRAM = """
import io, sys
import torch
import ensue.cli
from ensue.nn import GRU, LSTM

taggers, models, text = sys.argv[1:]
commands = [
    ["predict", taggers + "/names"],
    ["predict", taggers + "/topics"],
    ["evaluate", taggers + "/names", taggers + "/names.txt"],
    *(["generate", models + "/" + name, "--max-tokens", "3"] for name in ("lstm", "transformer")),
    *(["score", models + "/" + name, text] for name in ("lstm", "transformer")),
    ["evaluate", models + "/lstm", text],
]
for sys.argv[1:] in commands:
    sys.stdin = io.TextIOWrapper(io.BytesIO(b"Who was it ?\\n"))
    try:
        ensue.cli.main()
    except SystemExit as end:
        assert not end.code, end.code
assert len(ensue.load(taggers + "/names").predict(["Anna sees Lima."])[0]) == 4
assert ensue.load(models + "/lstm").score("warm rain")
x = torch.randn(2, 3, 8, requires_grad=True)
for layer in (LSTM(8, 4), GRU(8, 4)):
    layer(x)[0].sum().backward()
print("imported:", *sys.modules)
"""


def test_a_trained_model_at_work_imports_no_compiler(runs: Path, trained: Path, tmp_path: Path) -> None:
    (tmp_path / "few.txt").write_text(words(30))
    paths = map(str, (runs, trained, tmp_path / "few.txt"))
    done = subprocess.run([sys.executable, "-c", PROGRAM, *paths], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert not UNWANTED & set(done.stdout.splitlines()[-1].split())
