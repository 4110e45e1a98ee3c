"""Decoding: sampling and beam search."""
