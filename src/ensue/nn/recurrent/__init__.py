"""Recurrent layers, which carry a state from position to position."""
