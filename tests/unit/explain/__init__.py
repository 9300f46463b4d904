"""Tests of explain: the words people read."""
