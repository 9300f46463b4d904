"""The same requests, most of them wrong, to Kubernetes and to dray, and a comparison of the answers.

It contains the objects that are mutated, the generators of requests, the answers of Kubernetes on record, and
the rules that explain decided differences. It must not contain cases of other projects. Only tests import it.
"""
