"""Each topic has one notice in a process; tests reset this."""

from ensue import notices


def forget_notices() -> None:
    """Forget which topics have had a notice."""
    notices._topics.clear()
