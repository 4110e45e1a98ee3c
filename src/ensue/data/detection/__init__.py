"""What files are taken for: by the person's word, by their names, by their first lines. It reads nothing behind these.

`formats` says it for a task that knows what it wants, sentences or texts, `kind` for `ensue data`, which does not.
"""
