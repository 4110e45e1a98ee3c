"""Notices of the library are lines on stderr."""

import time
import warnings
from collections.abc import Callable

import pytest

from command_fixtures import CommandResult, Ensue
from ensue import notices
from ensue.console import output
from ensue.console.output import show_notices_as_lines
from ensue.errors import EnsueError
from ensue.notices import warn_once


def recipes(ensue: Ensue, monkeypatch: pytest.MonkeyPatch, listed: Callable[[], list[str]]) -> CommandResult:
    """Return the result of `ensue recipes` with this function as the list of recipes."""
    monkeypatch.setattr("ensue.recipe.recipe_names", listed)
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        return ensue("recipes")


def test_a_notice_is_one_line_and_shown_once(ensue: Ensue, monkeypatch: pytest.MonkeyPatch) -> None:
    def noticing() -> list[str]:
        for _ in range(2):
            warn_once("topic", "the compiler\n  fails (why)")
        return []

    result = recipes(ensue, monkeypatch, noticing).succeeded()
    assert result.err == "ensue: the compiler fails (why)\n"


def test_an_error_replaces_a_notice(ensue: Ensue, monkeypatch: pytest.MonkeyPatch) -> None:
    def mistaken() -> list[str]:
        warn_once("rows", "are these rows?")
        raise EnsueError("line 3 is not text")

    result = recipes(ensue, monkeypatch, mistaken)
    assert (result.status, result.err) == (2, "ensue: line 3 is not text\n")


def test_a_notice_does_not_wait_for_a_silent_command(ensue: Ensue, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = list[bool]()

    def working() -> list[str]:
        warn_once("slow", "this will take long")
        end = time.monotonic() + 30
        while output._pending and time.monotonic() < end:
            time.sleep(0.01)
        shown.append(not output._pending)
        return []

    monkeypatch.setattr(output, "MAX_DELAY_SECONDS", 0.01)
    result = recipes(ensue, monkeypatch, working)
    assert shown == [True]
    assert result.err == "ensue: this will take long\n"


def test_other_warnings_are_shown_like_pythons() -> None:
    shown = []
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        warnings.showwarning = lambda *of: shown.append(of[:2])
        with show_notices_as_lines():
            warnings.warn("something else", stacklevel=1)
    assert [(str(message), category) for message, category in shown] == [("something else", UserWarning)]


def called(topic: str, message: str) -> None:
    """Give a notice. Its line is that of the caller."""
    warn_once(topic, message)


def test_a_notice_has_the_line_of_its_caller_for_filters() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.filterwarnings("always", module=__name__.replace(".", r"\."))
        called("place", "a text is empty")
        warnings.filterwarnings("ignore", message="a text is long")
        called("silenced", "a text is long")
        warnings.filterwarnings("error", category=notices.Notice)
        with pytest.raises(notices.Notice, match="a text is short"):
            called("an error", "a text is short")
    assert [(shown.filename, shown.category, str(shown.message)) for shown in caught] == [
        (__file__, notices.Notice, "a text is empty")
    ]


def test_notices_of_many_topics_take_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the package nor Python's registry of warnings stores them."""
    monkeypatch.setattr(notices, "MAX_TOPICS", 3)
    shown = []
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        monkeypatch.setattr(warnings, "showwarning", lambda *of: shown.append(of))
        for number in range(20):
            called(f"kept {number}", f"text {number} is empty")
    assert len(shown) == 20
    assert not [key for key in globals().get("__warningregistry__", {}) if "is empty" in str(key)]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for number in range(20):
            for _ in range(2):
                warn_once(f"file {number}", "a text is empty")
            assert len(notices._topics) <= 3
    assert len(caught) == 20
