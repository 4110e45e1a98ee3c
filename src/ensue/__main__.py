"""The `ensue` command as `python -m ensue`."""

from ensue.cli import main

main()
