"""Containers whose keepers, cradles and agents are killed at random."""
