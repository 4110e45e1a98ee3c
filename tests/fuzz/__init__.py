"""Random wrong input for every reader: data, recipes, run directories, command lines. `make fuzz` runs it.

A case is a folder and a command line, and a pure function of the seed and its number (`cases.py`). It runs in a
separate process, forked from one that has imported everything (`process.py`), with bounded time and memory
(`supervisor.py`). It must succeed, or end with one line and status 2, and leave its input unchanged (`verdict.py`).
"""
