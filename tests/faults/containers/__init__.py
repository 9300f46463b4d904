"""Containers whose shims, fork servers and agents are killed at random."""
