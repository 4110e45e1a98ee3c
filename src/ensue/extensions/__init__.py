"""Features that the core can do without, one folder each."""
