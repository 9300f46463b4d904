"""Schedulers and controllers that are killed while pods come and go: all is in order in the end (R-10)."""
