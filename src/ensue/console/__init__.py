"""Output of the command line: the progress of a run, tables, lines. Nothing else uses it."""
