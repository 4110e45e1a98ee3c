"""Shared by the tasks that read words: labeling and classification."""
