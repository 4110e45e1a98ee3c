"""Recipes of the tasks of frames."""
