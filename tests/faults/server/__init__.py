"""Faults at the server: bad caches, clients that do not read, races, exhaustion, hostile bodies, spies."""
