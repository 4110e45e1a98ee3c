"""Stored runs: a small run of each task, written by ensue 0.1.0, and its outputs."""
