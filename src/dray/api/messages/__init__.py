"""The messages of Kubernetes: which fields every kind has, of which types, and which JSON always shows.

The tables name the fields as Kubernetes 1.37 has them; the struct types built from them decode, check and
write whole objects, also of kinds of which dray reads only a part. The package must not know which kinds a
server has, nor validate values. Everything that reads or writes whole objects may import it; types are built
when a kind is first used.
"""
