"""Vectors of texts and of words, in sentences and alone."""
