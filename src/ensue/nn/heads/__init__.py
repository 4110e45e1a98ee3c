"""Heads, which read the output of the last layer: softmax, CRF, mixture density and copying heads."""
