"""Wire formats that dray shares with other programs: gRPC services, Unix sockets, CDI files and protobuf.

It contains the services between node agents, drivers and container runtimes, and builds protobuf messages
from descriptors. It must not decide anything about claims or devices, nor keep state. The services, `store`,
`cluster` and `cli` may import it; it imports nothing of dray but what is pure.
"""
