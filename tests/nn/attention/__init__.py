"""Attention and Transformer blocks against torch.nn and closed forms."""
