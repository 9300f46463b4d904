"""Bottom-up traversal of a tree, without a stack frame of the host for every level.

Passes over a tree are written as recursion, because that reads best; a tree can be deeper than the host's
stack allows. `visit_bottom_up` visits the deepest nodes first, so that the recursion finds them done.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from typing import Final

from dray.cel.syntax.ast import Node

MAX_RECURSION_DEPTH: Final = 24
"""Up to this depth recursion alone is fine, and faster."""


def visit_bottom_up(
    root: Node,
    done: Container[int],
    get_children: Callable[[Node], tuple[Node, ...]],
    visit: Callable[[Node], object],
) -> None:
    """Visit everything below a node that is not done yet, children first; `visit` makes a node done."""
    waiting = [*get_children(root)]
    while waiting:
        node = waiting[-1]
        missing = () if node.id in done else [child for child in get_children(node) if child.id not in done]
        if missing:
            waiting += missing
            continue
        waiting.pop()
        if node.id not in done:
            visit(node)
