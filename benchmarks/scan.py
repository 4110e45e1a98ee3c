"""Two other training files for SCAN, which tell a model more about what its functions do.

A command of SCAN is one or two phrases with "and" or "after" between them. A phrase is a verb or "turn", a direction
with "opposite" or "around" before it or not, and "twice" or "thrice" or nothing.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

from ensue.errors import EnsueError

TIMES = {"twice": 2, "thrice": 3}
TURNS = {"around": 4}
MORE_TIMES = {f"times{count}": count for count in (4, 5, 6)}
MORE_TURNS = {f"arc{count}": count for count in (2, 3, 5, 6)}
"""Functions that SCAN does not have: so many rounds, and so many turns."""
SECOND = "|"
"""The mark between the actions of two phrases."""


def command_and_actions(line: str) -> tuple[str, str]:
    """The command and the actions of a line of SCAN."""
    command, mark, actions = line.strip().removeprefix("IN: ").partition(" OUT: ")
    if not mark:
        raise EnsueError(f"no line of SCAN: {line!r}")
    return command, actions


def counted(phrase: str) -> Iterator[str]:
    """The actions of a phrase, with the rounds of "thrice" and the turns of "around" that are to come before them."""
    words = phrase.split()
    rounds = (TIMES | MORE_TIMES).get(words[-1], 1)
    verb, *how = words[: len(words) - (rounds > 1)]
    turn = [f"I_TURN_{how[-1].upper()}"] if how else []
    act = [] if verb == "turn" else [f"I_{verb.upper()}"]
    for left in range(rounds, 0, -1):
        yield f"rounds{left}"
        if turns := (TURNS | MORE_TURNS).get(how[0] if how else ""):
            for to_come in range(turns, 0, -1):
                yield from (f"turns{to_come}", *turn, *act)
        else:
            yield from (*turn * (2 if how[:1] == ["opposite"] else 1), *act)


def written(command: str) -> list[str]:
    """The actions of a command with counters before them, sequences that help to learn (Jiang & Bansal 2021)."""
    first, also, second = command.partition(" and ")
    if not also:
        second, also, first = command.partition(" after ")
        first, second = (first, second) if also else (command, "")
    return [*counted(first), *((SECOND, *counted(second)) if also else ())]


def with_counters(line: str) -> str:
    """The line with counters before the actions."""
    command, actions = command_and_actions(line)
    if without_counters(found := written(command)) != actions.split():
        raise EnsueError(f"these are not the actions of the command: {line!r}")
    return f"IN: {command} OUT: {' '.join(found)}"


def with_more_functions(longest: int, count: int = 10_000) -> list[str]:
    """So many other lines of at most so many actions, with counters, in which are functions that SCAN does not have:
    "arc3" turns three times where "around" turns four times, "times5" has more rounds than "thrice".

    SCAN's lines of up to 22 actions have no "thrice" of "around" with a verb but "turn", so only counts of others
    tell that rounds and turns do not depend on each other. Patel et al. 2022 add verbs in this way.
    """
    generator, found = random.Random(0), set[str]()
    while len(found) < count:
        command = " ".join(some_phrase(generator))
        if generator.random() < 0.85:
            command = " ".join((command, generator.choice(["and", "after"]), *some_phrase(generator)))
        actions = written(command)
        if {*MORE_TIMES, *MORE_TURNS} & {*command.split()} and len(without_counters(actions)) <= longest:
            found.add(f"IN: {command} OUT: {' '.join(actions)}")
    return sorted(found)


def some_phrase(generator: random.Random) -> list[str]:
    """The words of a phrase, at random."""
    verb = generator.choice(["walk", "look", "run", "jump", "turn"])
    directions = [["left"], ["right"]] if verb == "turn" else [["left"], ["right"], []]
    direction, how = generator.choice(directions), generator.choice(["", "", "opposite", *(*TURNS, *MORE_TURNS) * 2])
    times = generator.choice(["", "", *TIMES, *MORE_TIMES])
    return [word for word in (verb, *([how, *direction] if direction else []), times) if word]


def without_counters(written: Sequence[str]) -> list[str]:
    """The actions alone."""
    return [token for token in written if token.startswith("I_")]


def with_more_verbs(
    lines: Sequence[str], verbs: int = 500, commands: int = 20, held_out: int = 25, alone: int = 4
) -> tuple[list[str], list[str]]:
    """The lines with so many other verbs, each alone and in so many of the commands, in place of another; and the
    commands of verbs that are held out, which the first list has alone, as it has "jump".

    "jump" alone is a tenth of all lines of SCAN's file. Here each verb is alone as often as others. Nothing says what
    "jump" does in a command. Source: Patel et al. 2022.
    """
    generator = random.Random(0)
    jump = "IN: jump OUT: I_JUMP"
    kept = [*(line for line in lines if line != jump), *[jump] * alone]
    others = [line for line in kept if any(verb in line for verb in ("walk", "look", "run"))]
    hidden: list[str] = []
    for number in range(verbs + held_out):
        kept += [f"IN: verb{number} OUT: I_VERB{number}"] * alone
        for line in generator.sample(others, commands):
            old = generator.choice([verb for verb in ("walk", "look", "run") if verb in line])
            new = line.replace(old, f"verb{number}").replace(old.upper(), f"VERB{number}")
            (kept if number < verbs else hidden).append(new)
    return kept, hidden
