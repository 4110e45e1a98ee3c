"""Readers of sentences with a label for each word, which can write the sentences back with other labels."""
