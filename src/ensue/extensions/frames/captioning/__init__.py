"""Captioning: a text for an image, or for another series of vectors."""
