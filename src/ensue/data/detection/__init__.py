"""The format of files, by the user's choice, by their names, or by their first lines.

`formats` finds it for a task that knows whether it reads sentences or texts, `kind` for `ensue data`, which does not
know.
"""
