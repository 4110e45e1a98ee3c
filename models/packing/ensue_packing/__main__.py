"""`python -m ensue_packing` is `ensue pack`, without installation."""

import sys

from ensue.cli import program
from ensue_packing.command import pack

program.COMMANDS = (*program.COMMANDS, pack)  # type: ignore[assignment]
sys.argv.insert(1, "pack")
program.main()
