"""Locations of data: a file, a pipe, a folder, links, or another kind of path; damaged, encoded and compressed."""

import gzip
import lzma
import os
from collections.abc import Callable, Collection
from pathlib import Path
from random import Random

from fuzz import odd
from fuzz.case import Case
from fuzz.damage import damaged
from fuzz.samples import SAMPLES, Sample, sample


def placed(choose: Random, case: Case, drawn_sample: Sample, *, plain: bool = False) -> tuple[str, list[str]]:
    """Write the data into the case's folder, damaged, encoded and compressed, and return its path and options."""
    encoding, options = "utf-8", []
    if not plain and choose.random() < 0.2:
        encoding = odd.encoding(choose)
        options = [] if choose.random() < 0.2 else ["--encoding", encoding]
    content = damaged(choose, _encoded(drawn_sample, encoding), max_changes=3)
    name, suffix = f"data{choose.randrange(10**6)}", drawn_sample.suffix
    if choose.random() < 0.15:
        content, suffix = _compressed(choose, content), suffix + choose.choice([".gz", ".xz", ".gz", ".GZ"])
    if choose.random() < 0.08:
        name = choose.choice(odd.NAMES)
    if choose.random() < 0.08:
        suffix = choose.choice([suffix for samples in SAMPLES.values() for suffix, _ in samples] + [".xz", ".gz", ".x"])
    path = case.folder / (name + suffix)
    kind = "file" if plain or choose.random() < 0.6 else choose.choice(list(PLACES))
    location = PLACES[kind](choose, case, path, content)
    if choose.random() < 0.03:
        forbid(choose, case, choose.choice([case.folder, *case.folder.rglob("*")]))
    return location, options


def _encoded(drawn_sample: Sample, encoding: str) -> bytes:
    if drawn_sample.suffix == ".bin":
        return drawn_sample.content.encode("latin-1")
    try:
        return drawn_sample.content.encode(encoding)
    except (LookupError, ValueError, AssertionError):
        return drawn_sample.content.encode()


def _compressed(choose: Random, content: bytes) -> bytes:
    cut = choose.randint(0, len(content))
    pieces = [content] if choose.random() < 0.8 else [content[:cut], content[cut:]]
    compress = choose.choice([gzip.compress, lzma.compress])
    compressed = b"".join(compress(piece) for piece in pieces)
    return damaged(choose, compressed, max_changes=2) if choose.random() < 0.5 else compressed


def put(path: Path, content: bytes) -> None:
    """Write the content, unless the system refuses the name."""
    try:
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content)
    except (OSError, ValueError):
        return


def _file(choose: Random, case: Case, path: Path, content: bytes) -> str:
    put(path, content)
    return choose.choice([path.name, path.name, f"./{path.name}", str(path)])


def _piped(choose: Random, case: Case, path: Path, content: bytes) -> str:
    case.stdin = content
    return choose.choice(["-", "-", "/dev/stdin"])


def _in_folder(choose: Random, case: Case, path: Path, content: bytes) -> str:
    """Write it with other files beside it, of the same kind or of another."""
    folder = case.folder / "folder"
    put(folder / path.name, content)
    for number in range(choose.randint(0, 2)):
        other_sample = sample(choose) if choose.random() < 0.3 else Sample(path.suffix, content.decode("latin-1"), "")
        other_content = damaged(choose, other_sample.content.encode("latin-1", "replace"), max_changes=1)
        put(folder / f"{number}{other_sample.suffix}", other_content)
    _put_others_beside(choose, folder)
    return choose.choice(["folder", "folder/", "folder/*", "folder/**", "**", f"folder/*{path.suffix}", "fold?r/**/*"])


def _in_class_folders(choose: Random, case: Case, path: Path, content: bytes) -> str:
    for label in choose.sample(["a", "b", "$x^$", "c d", "é"], choose.randint(1, 3)):
        folder = case.folder / "classes" / label
        folder.mkdir(parents=True, exist_ok=True)
        put(folder / path.name, damaged(choose, content, max_changes=1))
        _put_others_beside(choose, folder)
    _put_others_beside(choose, case.folder / "classes")
    return "classes"


def _put_others_beside(choose: Random, folder: Path) -> None:
    """Put other kinds of paths into a folder."""
    folder.mkdir(exist_ok=True)
    if choose.random() < 0.3:
        names = choose.sample(["special", "special.txt", ".special", "0.tsv"], choose.randint(1, 3))
        put_special_path(choose, *[folder / name for name in names])


def _special_path(choose: Random, case: Case, path: Path, content: bytes) -> str:
    put_special_path(choose, case.folder / "special", without=("fifo", "device"))
    return choose.choice(["special", "special/", "special/*", "special*"])


def _linked(choose: Random, case: Case, path: Path, content: bytes) -> str:
    put(path, content)
    if not os.path.lexists(case.folder / "link.txt"):
        (case.folder / "link.txt").symlink_to(path.name)
    return "link.txt"


def _nowhere(choose: Random, case: Case, path: Path, content: bytes) -> str:
    return choose.choice([odd.string(choose), "data.txt", "*.nothing", str(case.folder / "no" / "where")])


PLACES = {
    "file": _file, "pipe": _piped, "folder": _in_folder, "classes": _in_class_folders, "special": _special_path,
    "link": _linked, "nowhere": _nowhere,
}  # fmt: skip


SPECIAL_PATHS: dict[str, Callable[[Path], None]] = {
    "itself": lambda path: path.symlink_to(path.name), "its folder": lambda path: path.symlink_to("."),
    "broken": lambda path: path.symlink_to("nothing"), "device": lambda path: path.symlink_to("/dev/zero"),
    "fifo": os.mkfifo, "empty": lambda path: path.mkdir(),
}  # fmt: skip
"""Kinds of paths that are not regular files."""


def forbid(choose: Random, case: Case, path: Path) -> None:
    """Remove the permission to read, to write or to search."""
    if not path.is_symlink() and (path.is_file() or path.is_dir()):
        case.modes[path] = choose.choice([0o000, 0o400, 0o500, 0o200])


def put_special_path(choose: Random, *paths: Path, without: Collection[str] = ()) -> None:
    """Put a special path at each missing path. A pipe or a device that is named itself is read."""
    for path in paths:
        if not os.path.lexists(path):
            SPECIAL_PATHS[choose.choice([name for name in SPECIAL_PATHS if name not in without])](path)
