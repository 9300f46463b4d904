"""Random expressions against the engine: none may crash it, and none may evaluate differently elsewhere.

`python -m tests.fuzz_cel --count 20000 --seed 1` compares with cel-expr-python, another implementation of the
language (`requirements/oracle.txt`). Without it, only what needs no second implementation is checked.
"""
