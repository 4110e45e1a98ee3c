"""The interfaces of a task, and functions that all tasks share."""
