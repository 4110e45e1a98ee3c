"""`python -m ensue_packing` is `ensue pack`, without installation."""

import typer

from ensue_packing.command import pack

typer.run(pack)
