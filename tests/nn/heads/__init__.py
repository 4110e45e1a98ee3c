"""Heads against all logits and all paths written out."""
