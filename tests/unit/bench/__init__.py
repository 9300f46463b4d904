"""Tests of the benchmarks in bench/; none of them measures time."""
