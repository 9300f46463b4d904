"""Faults that others had, one test per row, named after the row's id."""
