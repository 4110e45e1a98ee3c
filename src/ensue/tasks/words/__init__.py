"""Modules that labeling and classification share: both tasks read texts as words."""
