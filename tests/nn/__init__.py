"""Layers against oracles that know nothing of them: torch.nn, closed forms, plain arithmetic, finite differences."""
