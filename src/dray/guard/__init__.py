"""The guard: a validating admission webhook that keeps the ledger for a cluster whose API server has none.

The package holds the ledger of stored and admitted allocations, the answers to reviews, the take-over of one
leader from another, and the certificates of the webhook. It must not contain the rules of grants
(`dray.claims.ledger`), and it communicates only through the API. `dray.cluster` imports it.
"""
