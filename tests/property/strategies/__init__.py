"""Shared strategies for generated inputs, one module per package of dray."""
