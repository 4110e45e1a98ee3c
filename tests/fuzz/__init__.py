"""Odd input for everything that reads: data, recipes, run directories, command lines. `make fuzz` runs it.

A case is a folder and a command line, and a pure function of the seed and its number (`cases.py`). It runs in a process
of its own, forked from one that has imported everything (`process.py`), under a bound on time and memory
(`supervisor.py`). It may end well, or in one line and status 2, and its input stays as it was (`verdict.py`).
"""
