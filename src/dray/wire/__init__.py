"""Wire formats: gRPC services, Unix sockets, CDI files, protobuf, and the frames of component processes.

It contains the services between node agents, drivers and container runtimes, builds protobuf messages from
descriptors, and encodes what the server and component processes send each other. It must not decide anything
about claims or devices, nor keep state. The services, `client`, `store`, `cluster` and `cli` may import it;
it imports nothing of dray but what is pure.
"""
