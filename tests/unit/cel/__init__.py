"""Mirrors dray.cel."""
