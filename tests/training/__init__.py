"""Tests of training: schedules, the loop, checkpoints, resuming, the run directory."""
