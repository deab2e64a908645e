"""A kernel that looks for bugs: how it is built, and whose the data races are that it finds."""
