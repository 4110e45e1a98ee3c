"""Captioning: texts for images or other series of vectors."""
