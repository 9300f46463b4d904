"""Classic DRA (KEP-3063): the base class of controllers that authors write, the decision what comes next for
a claim, the reconciler, the leader-elected controller service and the inventory of nodes in config maps. It
must not contain the node part of a driver or anything about structured allocation. `dray.driver` itself and
`dray.driver.service` import it; authors import names from `dray.driver`.
"""
