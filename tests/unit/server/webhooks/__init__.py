"""Webhooks asked, without a network."""
