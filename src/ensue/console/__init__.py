"""Output of the command line: the progress of a run, tables, lines. Only the command line imports this package."""
