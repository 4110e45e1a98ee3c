"""Models to sequences: sampling."""
