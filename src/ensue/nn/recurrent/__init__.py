"""Layers that carry a state from position to position: a cell is its `step`, or linear in its state."""
