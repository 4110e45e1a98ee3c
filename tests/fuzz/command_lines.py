"""Cases of command lines: every command and option, with odd values and odd files."""

from functools import cache, partial
from random import Random
from typing import Any

import typer

from ensue.cli import command_line
from fuzz import odd
from fuzz.case import Case
from fuzz.data_files import is_json
from fuzz.material import LANGUAGE_MODELS, MASKED, SEQUENCES, TINY, Material
from fuzz.places import placed, put_special_path
from fuzz.recipes import setting
from fuzz.samples import sample

NEVER = {"serve"}
"""Commands that run until they are stopped."""
LONG = {"quickstart", "--renew"}
"""Slow commands and options, which are drawn rarely."""
TRAINING = {"train", "quickstart", "machine"}
"""Commands that measure the machine if the cache has no profile of it."""
RARELY = 0.02


@cache
def commands() -> dict[str, Any]:
    """Return the commands of `ensue` by name."""
    every = typer.main.get_command(command_line()).commands  # type: ignore[attr-defined]
    return {name: command for name, command in every.items() if name not in NEVER}


def arrange(choose: Random, case: Case, material: Material) -> None:
    names = [name for name in commands() if name not in LONG or choose.random() < RARELY]
    name = choose.choice(names)
    arguments = [name]
    for parameter in commands()[name].params:
        arguments += _given(choose, case, material, name, parameter)
    arguments += BOUNDS.get(name, [])
    if choose.random() < 0.1:
        arguments.insert(
            choose.randint(0, len(arguments)), choose.choice([odd.string(choose), "--help", "-h", "--version"])
        )
    if choose.random() < 0.1 and len(arguments) > 1:
        del arguments[choose.randrange(len(arguments))]
    case.arguments = arguments
    case.stdin = choose.choice([b"", b"the cat sat\n", b"Anna sees Lima\n\nO\n", b"\xff\n", b"\0", b"x" * 100_000])
    if any(argument.startswith("--out") for argument in arguments):  # its path may be overwritten
        case.may_change = {path.name for path in case.folder.iterdir()}
    case.writes_progress = name in TRAINING
    if name not in TRAINING:
        case.environment = _environment(choose, case) | case.environment
    if promises_json(arguments):
        case.checks.append(is_json)


def promises_json(arguments: list[str]) -> bool:
    """Return whether a successful command writes JSON. Help and version have priority over the command."""
    return "--json" in arguments and not {"--help", "-h", "--version"} & set(arguments)


BOUNDS = {"train": TINY, "quickstart": ["--seconds", "1", "--threads", "1"], "gradients": ["--steps", "1"]}
"""Options that keep a command short."""

AMOUNTS = ["1", "3", "0", "-1", "10" * 9, "9" * 30, "x", "", "1e3", "1_0", "nan"]
"""Small values, or values beyond all bounds: others may be valid and slow."""
DEVICES = ["cpu", "auto", "cuda", "cuda:0", "cuda:99", "hpu", "mps", "meta", "cpu:7", "", "$", "é", "cpu:" + "9" * 400]
VALUES = {
    **dict.fromkeys(["beams", "n_best", "max_tokens", "samples", "positions", "d_model", "steps", "seconds"], AMOUNTS),
    "format": odd.FORMATS,
    "device": DEVICES,
    "threads": ["1", "2", "0", "-1", "1025", "9" * 30, "x", ""],
    "processes": ["1", "0", "-1", "1025", "9" * 30, "x", ""],
    "timeout": ["1", "600", "0", "-1", "9" * 30, "nan", "x", ""],
}
OUT = ["out", "out/deep/er", "out.svg", ".", "/dev/null", "/dev/full", "/proc/x"]


def _given(choose: Random, case: Case, material: Material, command: str, parameter: Any) -> list[str]:
    if parameter.param_type_name == "argument":
        return _argument(choose, case, material, command, parameter)
    usual = parameter.name in ("out", "train") and command == "train"
    if choose.random() > (0.9 if usual else 0.2):
        return []
    option = choose.choice(parameter.opts)
    if option in BOUNDS.get(command, ()) and not parameter.multiple:
        return []
    if option in LONG and choose.random() > RARELY:
        return []
    if parameter.is_flag:
        return [option]
    value = _value(choose, case, material, command, parameter)
    return choose.choice([[option, value], [option, value], [f"{option}={value}"]])


def _argument(choose: Random, case: Case, material: Material, command: str, parameter: Any) -> list[str]:
    if choose.random() < 0.05:
        return []
    values = {
        "run": lambda: _run(choose, case, material, command),
        "path": lambda: _path(choose, case),
        "paths": lambda: _path(choose, case),
        "text": lambda: _path(choose, case),
        "recipe": lambda: choose.choice(["char-lstm", "char-gru", "tag-lstm", "classify-bag", odd.string(choose)]),
        "name": lambda: choose.choice(["char-lstm", "tag-lstm", odd.string(choose)]),
        "encoders": lambda: choose.choice(["lstm", "gru", "elman", "mingru", "x", odd.string(choose)]),
    }
    value = values.get(parameter.name, lambda: odd.string(choose))
    return [value() for _ in range(choose.choice([1, 1, 2]) if parameter.nargs == -1 else 1)]


def _run(choose: Random, case: Case, material: Material, command: str) -> str:
    if choose.random() < 0.1:
        return choose.choice([odd.string(choose), str(material.folder), _path(choose, case)])
    tasks = {"generate": [LANGUAGE_MODELS], "score": [LANGUAGE_MODELS, SEQUENCES, MASKED], "embed": [MASKED]}.get(
        command, []
    )
    return str(material.run(choose, *tasks).path)


def _path(choose: Random, case: Case) -> str:
    if choose.random() < 0.5:
        return placed(choose, case, sample(choose))[0]
    if choose.random() < 0.2:
        put_special_path(choose, case.folder / "special", without=("fifo", "device"))
        return "special"
    return choose.choice(["-", odd.string(choose)])


def _value(choose: Random, case: Case, material: Material, command: str, parameter: Any) -> str:
    """Return a value for the option, or one of its type."""
    if parameter.name in VALUES:
        return choose.choice(VALUES[parameter.name])
    data, path = str(material.run(choose).data), partial(_path, choose, case)
    special = {
        "train": [path, lambda: data, lambda: data], "valid": [path, lambda: data], "test": [path, lambda: data],
        "settings": [partial(setting, choose)], "compare": [partial(_run, choose, case, material, command)],
        "others": [partial(_run, choose, case, material, command)], "encoding": [partial(odd.encoding, choose)],
        "out": [path, *[partial(str, place) for place in OUT]], "int": [partial(odd.numeral, choose), lambda: "1"],
        "float": [partial(odd.numeral, choose), lambda: "0.5"], "Path": [path],
    }  # fmt: skip
    values = special.get(parameter.name) or special.get(parameter.bare_type()) or [partial(odd.string, choose)]
    return choose.choice(values)()


def _environment(choose: Random, case: Case) -> dict[str, str]:
    """Return the environment, sometimes with an unusable cache."""
    if choose.random() < 0.9:
        return {}
    return choose.choice(
        [
            {"ENSUE_CACHE": value}
            for value in ["/dev/null", "/proc/nothing", "/dev/full/x", "a\nb", str(case.folder / "new")]
        ]
        + [{"COLUMNS": value} for value in ["0", "1", "-5", "x", "100000"]]
        + [{"HOME": "/nowhere", "ENSUE_CACHE": ""}, {"TERM": "dumb"}, {"NO_COLOR": "1"}, {"FORCE_COLOR": "1"}]
    )
