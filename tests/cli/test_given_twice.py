"""Law: each value of a repeated option is used or refused, for every option of every command."""

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


def problem_of(parse: Callable[[Sequence[str]], dict[str, Any]], option: Any) -> str:
    """Return a problem with a repeated option, or "" if both values are used or refused."""
    for first in (*option.opts, *option.secondary_opts):
        for second in (*option.opts, *option.secondary_opts):
            try:
                values = parse([first, second] if option.is_flag else [first, "1", second, "2"])
            except USAGE_ERROR as error:
                if "given 2 times" not in error.format_message():
                    return f"{first} {second}: {error.format_message()}"
            else:
                if not option.multiple or list(map(str, values[option.name])) != ["1", "2"]:
                    return f"{first} {second}: used as {values[option.name]!r}"
    return ""


def parser(command: Any) -> Callable[[Sequence[str]], dict[str, Any]]:
    """Return a function that parses options, without arguments and required options."""

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
    assert [wrong for each, option in options() if each == name and (wrong := problem_of(parse, option))] == []


def test_a_command_that_drops_a_value_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(StrictCommand, "parse_args", TyperCommand.parse_args)
    wrong = {option.name: problem_of(parser(commands()[name]), option) for name, option in options() if name == "train"}
    assert wrong["out"] == "--out --out: used as '2'"


def test_a_repeated_option_is_refused_with_one_line(refused: Callable[..., str], tmp_path: Path) -> None:
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
def test_a_key_that_is_set_twice_is_refused(settings: Any, key: str) -> None:
    with pytest.raises(RecipeError, match=f'^"{key}" is set twice; expected one value$'):
        read_recipe("char-lstm", settings, train="b")


def test_two_budgets_of_steps_are_refused() -> None:
    with pytest.raises(RecipeError, match="found steps and seconds"):
        read_recipe("char-lstm", ["train.steps=3", "train.seconds=4"])
