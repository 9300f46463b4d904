"""A store in etcd: the protocol spoken over gRPC, with messages of our own making.

Nothing here keeps state of its own beyond where a watch has come to; what is durable is etcd's business, and
nothing here understands the values. Only the address book of the store package imports it, and only when an
etcd is asked for, because it needs the `etcd` extra.
"""
