"""Pipelines with vectors of texts and of words."""
