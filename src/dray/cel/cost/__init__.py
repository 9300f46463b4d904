"""CEL costs in the units of cel-go and Kubernetes: what a call costs when it runs, the worst-case estimate of
an expression, and the declared size bounds the estimate depends on. It computes figures only; charging them
is the work of `dray.cel.evaluation`. The evaluation and the environment import it, and whoever declares
variables imports `SizeBound`.
"""
