"""Stop strings of texts that arrive in pieces."""

import pytest

from ensue.extensions.serving.row import StopStrings

TEXT = "the sea was calm. the see-saw was not"


@pytest.mark.parametrize(
    ("stops", "expected"),
    [
        (("sea",), "the "), (("see", "see-saw"), "the sea was calm. the "), (("see-saw", "see-"), None),
        (("xyz",), TEXT), (("as c", "s"), "the "), (("calm. the x", "was n"), "the sea was calm. the see-saw "),
        (("t",), ""), ((TEXT,), ""), ((TEXT + "!",), TEXT),
    ],
)  # fmt: skip
@pytest.mark.parametrize("size", [1, 2, 3, 5, 100])
def test_a_text_ends_before_its_stop_string(stops: tuple[str, ...], expected: str | None, size: int) -> None:
    watch, written, has_ended = StopStrings(stops), "", False
    for start in range(0, len(TEXT), size):
        piece, has_ended = watch.feed(TEXT[start : start + size])
        written += piece
        assert not any(stop in written for stop in stops)
        if has_ended:
            break
    written += "" if has_ended else watch.flush()
    assert written == ("the sea was calm. the " if expected is None else expected)
    assert has_ended == (written != TEXT)
