"""Several writers without a leader hammer one server: no device is handed out twice, no limit is overrun."""
