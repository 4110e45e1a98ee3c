"""Models: features → layers → head."""
