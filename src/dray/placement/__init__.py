"""Placement: chooses a node for a pod with scheduler plugins on a cluster snapshot.

It contains the snapshot, the plugins, the scheduling cycle and its rejections, and the rules of node health
and fencing, all as pure functions of frozen values. It must not contain a client, a queue or a clock. The
scheduler, the controllers, cluster and the simulation import it.
"""
