"""Two modified training files for SCAN: with counters before the actions, and with more verbs.

A command of SCAN is one phrase, or two phrases joined by "and" or "after". A phrase is a verb or "turn", an optional
direction, which may have "opposite" or "around" before it, and an optional "twice" or "thrice".
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

from ensue.errors import EnsueError

TIMES = {"twice": 2, "thrice": 3}
TURNS = {"around": 4}
MORE_TIMES = {f"times{count}": count for count in (4, 5, 6)}
MORE_TURNS = {f"arc{count}": count for count in (2, 3, 5, 6)}
"""Functions that SCAN does not have: numbers of repetitions, and numbers of turns."""
SECOND = "|"
"""The mark between the actions of two phrases."""


def command_and_actions(line: str) -> tuple[str, str]:
    """Return the command and the actions of a line of SCAN."""
    command, mark, actions = line.strip().removeprefix("IN: ").partition(" OUT: ")
    if not mark:
        raise EnsueError(f"not a line of SCAN: {line!r}")
    return command, actions


def phrase_actions(phrase: str) -> Iterator[str]:
    """Yield the actions of a phrase. Before them are counters of the remaining repetitions and turns."""
    words = phrase.split()
    rounds = (TIMES | MORE_TIMES).get(words[-1], 1)
    verb, *direction = words[: len(words) - (rounds > 1)]
    turn = [f"I_TURN_{direction[-1].upper()}"] if direction else []
    action = [] if verb == "turn" else [f"I_{verb.upper()}"]
    for remaining_rounds in range(rounds, 0, -1):
        yield f"rounds{remaining_rounds}"
        if turns := (TURNS | MORE_TURNS).get(direction[0] if direction else ""):
            for remaining_turns in range(turns, 0, -1):
                yield from (f"turns{remaining_turns}", *turn, *action)
        else:
            yield from (*turn * (2 if direction[:1] == ["opposite"] else 1), *action)


def command_actions(command: str) -> list[str]:
    """Return the actions of a command with counters before them. Source: auxiliary sequences, Jiang & Bansal 2021."""
    first, conjunction, second = command.partition(" and ")
    if not conjunction:
        second, conjunction, first = command.partition(" after ")
        first, second = (first, second) if conjunction else (command, "")
    return [*phrase_actions(first), *((SECOND, *phrase_actions(second)) if conjunction else ())]


def with_counters(line: str) -> str:
    """Return the line with counters before the actions."""
    command, actions = command_and_actions(line)
    if without_counters(counted := command_actions(command)) != actions.split():
        raise EnsueError(f"the actions do not belong to the command: {line!r}")
    return f"IN: {command} OUT: {' '.join(counted)}"


def with_more_functions(max_actions: int, count: int = 10_000) -> list[str]:
    """Return `count` random lines with functions that SCAN lacks, with counters and at most `max_actions` actions.

    For example "arc3" turns three times, while "around" turns four times; "times5" repeats five times, "thrice" three
    times. SCAN's lines of up to 22 actions never have "thrice" with "around", except for the verb "turn". Without
    other numbers a model cannot learn that repetitions and turns are independent. Patel et al. 2022 add verbs in a
    similar way.
    """
    generator, lines = random.Random(0), set[str]()
    while len(lines) < count:
        command = " ".join(random_phrase(generator))
        if generator.random() < 0.85:
            command = " ".join((command, generator.choice(["and", "after"]), *random_phrase(generator)))
        actions = command_actions(command)
        if {*MORE_TIMES, *MORE_TURNS} & {*command.split()} and len(without_counters(actions)) <= max_actions:
            lines.add(f"IN: {command} OUT: {' '.join(actions)}")
    return sorted(lines)


def random_phrase(generator: random.Random) -> list[str]:
    """Return the words of a random phrase."""
    verb = generator.choice(["walk", "look", "run", "jump", "turn"])
    directions = [["left"], ["right"]] if verb == "turn" else [["left"], ["right"], []]
    direction, manner = generator.choice(directions), generator.choice(["", "", "opposite", *(*TURNS, *MORE_TURNS) * 2])
    times = generator.choice(["", "", *TIMES, *MORE_TIMES])
    return [word for word in (verb, *([manner, *direction] if direction else []), times) if word]


def without_counters(tokens: Sequence[str]) -> list[str]:
    """Return the actions without counters."""
    return [token for token in tokens if token.startswith("I_")]


def with_more_verbs(
    lines: Sequence[str], verbs: int = 500, commands: int = 20, held_out: int = 25, alone: int = 4
) -> tuple[list[str], list[str]]:
    """Return training lines with more verbs, and further lines with held-out verbs.

    The training lines have `verbs` new verbs. Each new verb is `alone` times a one-word command, and replaces another
    verb in `commands` of the commands. The training lines have `held_out` more verbs only as one-word commands, like
    "jump"; the further lines are other commands with these verbs. In SCAN's file a tenth of all lines is "jump" as a
    one-word command; here all verbs are one-word commands equally often. Source: Patel et al. 2022.
    """
    generator = random.Random(0)
    jump = "IN: jump OUT: I_JUMP"
    train_lines = [*(line for line in lines if line != jump), *[jump] * alone]
    others = [line for line in train_lines if any(verb in line for verb in ("walk", "look", "run"))]
    held_out_lines: list[str] = []
    for number in range(verbs + held_out):
        train_lines += [f"IN: verb{number} OUT: I_VERB{number}"] * alone
        for line in generator.sample(others, commands):
            old = generator.choice([verb for verb in ("walk", "look", "run") if verb in line])
            new = line.replace(old, f"verb{number}").replace(old.upper(), f"VERB{number}")
            (train_lines if number < verbs else held_out_lines).append(new)
    return train_lines, held_out_lines
