"""The engine against its naive twin, its parts alone, and its C under a compiler, numpy and sanitizers."""
