"""Several writers without a leader load one server: no device is allocated twice, no limit is exceeded."""
