"""What node agents, drivers and runtimes say to each other: gRPC messages, sockets, CDI files.

Nothing here decides anything or keeps anything; messages are made from the descriptors of the `.proto` files
beside them. Services and everything above may import it; of dray it imports only what is pure.
"""
