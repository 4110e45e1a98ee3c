"""A small trained run of each task as ensue 0.1.0 wrote it, and what it answers."""
