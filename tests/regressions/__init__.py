"""Bugs that other implementations had, one test per row, named after the row's id."""
