"""The device ledger in the server: the ledger as an admission rule, published pools, reconciliation of
ledger and claims, the quarantine after a restore, and the endpoints for administrators. The rules of the
ledger themselves are in dray.claims and stay pure. app and the doctor commands may import it.
"""
