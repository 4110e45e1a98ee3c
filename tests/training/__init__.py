"""Training: schedules, the loop, checkpoints, resuming, the run directory."""
