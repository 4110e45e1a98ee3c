"""Cases of models that are exchanged with other programs: published ones and vectors, spoiled, and runs that leave."""

import shutil
from pathlib import Path
from random import Random

from extensions.importing.published import fasttext_model
from fuzz import odd
from fuzz.case import Case
from fuzz.damage import damaged
from fuzz.material import Material
from fuzz.run_directories import sign, spoil
from fuzz.samples import sample


def arrange(choose: Random, case: Case, material: Material) -> None:
    choose.choice([_directory, _directory, _vectors, _leaving])(choose, case, material)


def _directory(choose: Random, case: Case, material: Material) -> None:
    """A directory of transformers, of which files are spoiled; or of which another program has more."""
    given = Path(shutil.copytree(material.folder / "published", case.folder / "given"))
    if choose.random() < 0.3:
        name = choose.choice(["modules.json", "tokenizer_config.json", "model.safetensors.index.json", "vocab.txt"])
        (given / name).write_bytes(damaged(choose, choose.choice([b"[]", b"{}", b"[PAD]\n[UNK]\n", b"null"])))
    if choose.random() < 0.1:
        (given / "model.safetensors").rename(given / choose.choice(["pytorch_model.bin", "x.safetensors"]))
    for _ in range(choose.choice([0, 1, 1, 2])):
        spoil(choose, choose.choice([path for path in sorted(given.iterdir()) if path.is_file()]), material)
    _import(choose, case, "given")


def _vectors(choose: Random, case: Case, material: Material) -> None:
    """A model of fastText, or vectors in another format."""
    if choose.random() < 0.6:
        name, content = "given.bin", fasttext_model(minn=choose.choice([0, 2]))
    else:
        found = sample(choose, "vectors")
        name, content = f"given{found.suffix}", found.content.encode("latin-1" if found.suffix == ".bin" else "utf-8")
    (case.folder / name).write_bytes(damaged(choose, content, most=2))
    _import(choose, case, name)


def _leaving(choose: Random, case: Case, material: Material) -> None:
    """A run of any kind, whole or spoiled, as a directory of transformers."""
    copy = Path(shutil.copytree(material.run(choose).path, case.folder / "run"))
    if choose.random() < 0.7:
        spoil(choose, choose.choice([path for path in sorted(copy.rglob("*")) if path.is_file()]), material)
        sign(copy)
    format = choose.choice(["huggingface"] * 4 + [odd.string(choose)])
    case.arguments = ["export", "run", "--format", format, "--out", "out"]
    case.may_change = {"out"}


def _import(choose: Random, case: Case, name: str) -> None:
    case.arguments = ["import", name, "--out", "made", *choose.choice([[], [], ["--overwrite"]])]
    case.may_change, case.may_talk = {"made"}, True
