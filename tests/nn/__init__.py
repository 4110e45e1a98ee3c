"""Layers equal independent oracles: torch.nn, closed forms, plain arithmetic, finite differences."""
