"""Transactions: several requests that are decided together and committed together, or not at all.

It contains the parser, the staged registry and the endpoint; no rule about objects, which are those of single
requests. The server (`app`) imports it.
"""
