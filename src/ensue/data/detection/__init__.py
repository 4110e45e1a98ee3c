"""The format of files, by the user's choice, by their names, or by their first lines. No more of them is read.

`formats` says it for a task that knows what it wants, sentences or texts, `kind` for `ensue data`, which does not.
"""
