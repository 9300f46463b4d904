"""The gradual type checker: types and overloads of every node, unification of type variables, checks of
literals, and which static types hold at run time. It evaluates nothing and computes no costs.
`dray.cel.cost`, `dray.cel.evaluation` and the environment import it; from outside, only selector analysis
in `dray.api.devices` does.
"""
