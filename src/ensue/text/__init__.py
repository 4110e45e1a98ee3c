"""Strings to ids and back: vocabularies, tokenizers and subwords. Nothing here imports torch."""
