"""Tests of dray.values, one file per module."""
