"""Several schedulers without a leader place pods on the same devices: none is handed out twice (R-08)."""
