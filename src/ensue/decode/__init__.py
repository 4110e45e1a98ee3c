"""From models to sequences: sampling."""
