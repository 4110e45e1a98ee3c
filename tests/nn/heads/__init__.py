"""Heads equal computations over all logits and all paths."""
