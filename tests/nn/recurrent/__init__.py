"""Recurrent layers against torch.nn, the equations of the papers written out, and numpy."""
