"""Recurrent layers equal torch.nn, the equations of papers, and numpy."""
