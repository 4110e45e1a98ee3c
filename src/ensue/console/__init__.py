"""What a person sees: the progress of a run, tables, lines in and out. Used by the command line alone."""
