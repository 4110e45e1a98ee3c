"""What `ensue data` shows: the format of the data, and their numbers. Nothing is printed here."""
