"""Attention, Transformer blocks, and encodings of positions."""
