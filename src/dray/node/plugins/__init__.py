"""Driver plugins on a node: their registration through sockets, the gRPC clients that call them, the health
they stream, and the slices they published. It knows nothing of pods, containers or which claims are held,
and no decision about a claim is made here. The agent and `dray.node.claims.preparer` import it.
"""
