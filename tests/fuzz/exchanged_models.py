"""Cases of models exchanged with other programs: damaged published models and vectors, and exported runs."""

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
    """Arrange an import of a directory of transformers with damaged files, or with files of another program."""
    directory = Path(shutil.copytree(material.folder / "published", case.folder / "input"))
    if choose.random() < 0.3:
        name = choose.choice(["modules.json", "tokenizer_config.json", "model.safetensors.index.json", "vocab.txt"])
        (directory / name).write_bytes(damaged(choose, choose.choice([b"[]", b"{}", b"[PAD]\n[UNK]\n", b"null"])))
    if choose.random() < 0.1:
        (directory / "model.safetensors").rename(directory / choose.choice(["pytorch_model.bin", "x.safetensors"]))
    for _ in range(choose.choice([0, 1, 1, 2])):
        spoil(choose, choose.choice([path for path in sorted(directory.iterdir()) if path.is_file()]), material)
    _import(choose, case, "input")


def _vectors(choose: Random, case: Case, material: Material) -> None:
    """Arrange an import of a model of fastText, or of vectors in another format."""
    if choose.random() < 0.6:
        name, content = "given.bin", fasttext_model(minn=choose.choice([0, 2]))
    else:
        drawn_sample = sample(choose, "vectors")
        name, content = (
            f"input{drawn_sample.suffix}",
            drawn_sample.content.encode("latin-1" if drawn_sample.suffix == ".bin" else "utf-8"),
        )
    (case.folder / name).write_bytes(damaged(choose, content, max_changes=2))
    _import(choose, case, name)


def _leaving(choose: Random, case: Case, material: Material) -> None:
    """Arrange an export of a run of any kind, valid or damaged, as a directory of transformers."""
    copy = Path(shutil.copytree(material.run(choose).path, case.folder / "run"))
    if choose.random() < 0.7:
        spoil(choose, choose.choice([path for path in sorted(copy.rglob("*")) if path.is_file()]), material)
        sign(copy)
    format = choose.choice(["huggingface"] * 4 + [odd.string(choose)])
    case.arguments = ["export", "run", "--format", format, "--out", "out"]
    case.may_change = {"out"}


def _import(choose: Random, case: Case, name: str) -> None:
    case.arguments = ["import", name, "--out", "made", *choose.choice([[], [], ["--overwrite"]])]
    case.may_change, case.writes_progress = {"made"}, True
