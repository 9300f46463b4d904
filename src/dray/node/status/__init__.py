"""The Node object of an agent: registration, lease heartbeat, status and the Ready condition. It contains
nothing about pods or claims; the checks that make a node unready are passed in. The agent and the
composition root import it.
"""
