"""The law that each value given is used or refused, for every option of every command, taken from the command line."""

from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.core import TyperCommand

from ensue.cli import command_line
from ensue.cli.options import StrictCommand
from ensue.cli.program import USAGE_ERROR
from ensue.errors import RecipeError
from ensue.recipe import read_recipe


@cache
def commands() -> dict[str, Any]:
    return typer.main.get_command(command_line()).commands  # type: ignore[attr-defined,no-any-return]


def options() -> list[tuple[str, Any]]:
    return [
        (name, option)
        for name, command in commands().items()
        for option in command.params
        if option.param_type_name == "option"
    ]


def dropped(parse: Callable[[Sequence[str]], dict[str, Any]], option: Any) -> str:
    """What is wrong with the answer to an option that is given twice; "" if both values are used or refused."""
    for first in (*option.opts, *option.secondary_opts):
        for second in (*option.opts, *option.secondary_opts):
            try:
                found = parse([first, second] if option.is_flag else [first, "1", second, "2"])
            except USAGE_ERROR as error:
                if "given 2 times" not in error.format_message():
                    return f"{first} {second}: {error.format_message()}"
            else:
                if not option.multiple or list(map(str, found[option.name])) != ["1", "2"]:
                    return f"{first} {second}: used as {found[option.name]!r}"
    return ""


def parser(command: Any) -> Callable[[Sequence[str]], dict[str, Any]]:
    """The values of options, without those of arguments and of what is required."""

    def parse(arguments: Sequence[str]) -> dict[str, Any]:
        values, _, _ = command.make_parser(context := command.context_class(command)).parse_args(list(arguments))
        try:
            command.parse_args(context, list(arguments))
        except USAGE_ERROR as error:
            if "given" in error.format_message():
                raise
        return dict(values)

    return parse


@pytest.mark.parametrize("name", commands())
def test_an_option_given_twice_is_used_or_refused(name: str) -> None:
    parse = parser(commands()[name])
    assert [wrong for each, option in options() if each == name and (wrong := dropped(parse, option))] == []


def test_the_law_sees_a_command_that_drops_a_value(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(StrictCommand, "parse_args", TyperCommand.parse_args)
    wrong = {option.name: dropped(parser(commands()[name]), option) for name, option in options() if name == "train"}
    assert wrong["out"] == "--out --out: used as '2'"


def test_a_repeated_option_is_refused_in_one_line(refused: Callable[..., str], tmp_path: Path) -> None:
    assert refused("train", "char-lstm", "--out", tmp_path, "--out", "b") == "--out is given 2 times; expected once"


@pytest.mark.parametrize(
    ("settings", "key"),
    [
        (["train.seed=1", "train.seed=2"], "train.seed"),
        (["encoder.kind=lstm", " encoder.kind =gru"], "encoder.kind"),
        (["train={steps=3}", "train.seed=2"], "train.seed"),
        (["data.train=a"], "data.train"),
        ({"data.train": "a"}, "data.train"),
    ],
)
def test_a_key_set_twice_is_refused(settings: Any, key: str) -> None:
    with pytest.raises(RecipeError, match=f'^"{key}" is set twice; expected one value$'):
        read_recipe("char-lstm", settings, train="b")


def test_two_budgets_are_refused() -> None:
    with pytest.raises(RecipeError, match="found steps and seconds"):
        read_recipe("char-lstm", ["train.steps=3", "train.seconds=4"])
