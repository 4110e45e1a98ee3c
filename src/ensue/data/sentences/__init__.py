"""Sentences with a label for each word: read from the usual formats, and written back with other labels."""
