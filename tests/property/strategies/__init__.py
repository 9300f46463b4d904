"""The shared vocabulary of generated inputs, one module per package of dray."""
