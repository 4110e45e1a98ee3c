"""Shared by the tasks that read series of frames."""
