"""How far gradients reach back."""
