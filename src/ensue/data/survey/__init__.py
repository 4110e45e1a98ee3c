"""The numbers behind `ensue data`, and the format of the data. Nothing is printed here."""
