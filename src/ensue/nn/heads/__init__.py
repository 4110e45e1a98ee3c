"""Heads, which follow the last layer: a softmax over a vocabulary with its loss, and a chain over labels."""
