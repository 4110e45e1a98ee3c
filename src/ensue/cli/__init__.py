"""The command line: a file for each group of commands."""

from ensue.cli.program import app, main

__all__ = ["app", "main"]
