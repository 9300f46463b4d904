"""Driver plugins on a node: their registration through sockets, the gRPC clients that call them, the health
they stream, and the slices they published. It contains nothing about pods or containers, and makes no
decision about a claim. The agent, `dray.node.claims` and the simulated nodes of `dray.cluster` import it.
"""
