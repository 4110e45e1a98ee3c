"""The contract of a task: the classes that each one fills in, and what all of them need."""
