"""Tests of `dray.guard`."""
