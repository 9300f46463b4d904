"""Pod workers: one task per pod that starts, restarts and stops its containers, has its claims prepared and
released, and writes its status. How a container is configured or run belongs in `dray.node.containers`, and
how claims are prepared in `dray.node.claims`. The agent and `dray.node.server` import it.
"""
