"""Pods that race for the last places of a claim: exactly as many get one as are allowed (R-09)."""
