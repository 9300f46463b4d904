"""Random expressions against the engine: none may break it, and none may mean something else than elsewhere.

`python -m tests.fuzz_cel --count 20000 --seed 1` compares with cel-expr-python, another implementation of the
language (`requirements/oracle.txt`). Without it, only what needs no second opinion is checked.
"""
