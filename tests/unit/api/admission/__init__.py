"""Admission webhooks as values."""
