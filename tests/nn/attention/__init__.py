"""Attention and Transformer blocks equal torch.nn and closed forms."""
