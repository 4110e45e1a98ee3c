"""The command line: arguments, errors and output."""
