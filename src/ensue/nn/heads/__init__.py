"""Heads, which read the output of the last layer: softmax heads, a linear-chain CRF and a copying head."""
