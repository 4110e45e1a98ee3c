"""`python -m ensue` is the `ensue` command."""

from ensue.cli import main

main()
