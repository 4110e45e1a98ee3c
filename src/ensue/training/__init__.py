"""Training: the loop, its checkpoints, its optimizer and its log."""
