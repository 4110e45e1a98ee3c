"""The command line: a file for each group of commands."""

from ensue.cli.program import command_line, main

__all__ = ["command_line", "main"]
