"""Layers that look at all positions before: attention, the blocks of a Transformer, and where a position is."""
