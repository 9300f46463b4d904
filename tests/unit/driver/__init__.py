"""Tests of the kit for drivers and of its conformance suite."""
