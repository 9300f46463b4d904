"""Reconcilers: they observe through informers, ask `claims` what to do, and write what they were told.

Decisions are not taken here, and nothing here knows a server's inside: whatever serves the Kubernetes API
will do. `cluster` and the command line import it; other services never do.
"""
