"""Fuzz cases, each determined by a seed and a number."""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from random import Random

from fuzz import bombs, command_lines, data_files, exchanged_models, frame_files, odd_streams, recipes, run_directories
from fuzz.case import Case
from fuzz.material import Material

KINDS: dict[str, Callable[[Random, Case, Material], None]] = {
    "data": data_files.arrange, "recipe": recipes.arrange, "run": run_directories.arrange,
    "command": command_lines.arrange, "stream": odd_streams.arrange, "exchange": exchanged_models.arrange,
    "frames": frame_files.arrange, "bomb": bombs.arrange,
}  # fmt: skip
TURNS = ["data", "run", "data", "command", "run", "data", "recipe", "data", "command", "run"] * 3
TURNS[8] = "stream"
TURNS[11] = "exchange"
TURNS[13] = "frames"
TURNS[16] = "recipe"
TURNS[14] = "bomb"
TURNS[20] = TURNS[22] = TURNS[25] = TURNS[27] = "frames"
ENDLESS = ("/dev/zero", "/dev/full")


def numbered(count: int, kind: str | None = None) -> list[str]:
    """Return the names "kind:number" of the first `count` cases, or of those among them that have a kind."""
    names = [f"{TURNS[number % len(TURNS)]}:{number}" for number in range(count)]
    return [name for name in names if kind is None or name.startswith(f"{kind}:")]


def cases(names: Iterable[str], seed: int, material: Material, folder: Path) -> Iterator[Case]:
    """Yield each case, arranged in a separate folder below `folder`."""
    for name in names:
        kind, _, _ = name.partition(":")
        case = Case(name, folder / name.replace(":", "-"))
        case.folder.mkdir()
        KINDS[kind](Random(f"{seed}/{name}"), case, material)
        if "score" in case.arguments:
            _without_endless(case)
        yield case


def _without_endless(case: Case) -> None:
    """Replace endless inputs, which `score` would read forever."""
    case.arguments = ["/dev/null" if argument in ENDLESS else argument for argument in case.arguments]
    if case.streams[0] == "full":
        case.streams = ("file", *case.streams[1:])
