"""What runs containers on a node: one protocol, and a room for each way to keep it.

Nothing here knows claims, drivers or the API; a container comes in as a `Launch` with its devices already
turned into edits. Only the node agent and the composition root import it.
"""
