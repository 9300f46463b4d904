"""The store in etcd, over gRPC, with message classes built from a table.

It keeps no state but the position of its watches; etcd provides durability. It must not interpret the values.
Only `store.address` imports it, and only for an etcd address, because it needs the `etcd` extra.
"""
