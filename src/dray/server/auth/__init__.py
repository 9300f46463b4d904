"""Who asks, and what they may do: credentials, roles, and the confinement of nodes and drivers.

Nothing here reads requests from the wire or writes objects; it identifies, decides, and says why. The front
door of the server and the composition root import it.
"""
