"""Small changes to the code that tests near it have to notice: how sharp the tests are (`make mutants`)."""
