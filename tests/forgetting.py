"""Notices are given once for each topic; tests forget them."""

from ensue import notices


def forget_what_was_said() -> None:
    """Forget which topics have had a notice."""
    notices._topics.clear()
