"""Tests of patches and managed fields."""
