"""The planner that turns a checked syntax tree into executable steps, and the steps themselves: calls,
comparisons, logic, paths and comprehensions, with their frame and cost budget. It parses and type-checks
nothing, and no library function is defined here. Only `dray.cel.environment` imports it.
"""
