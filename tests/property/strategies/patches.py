"""Generated documents and patches: plain JSON, and pods small enough to collide."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

scalars = st.none() | st.booleans() | st.integers(-2, 2) | st.sampled_from(["", "x", "y", "~/"])
names = st.sampled_from(["", "a", "b", "c", "0", "a/b", "m~n"])


def trees(leaves: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """JSON of a few levels over the given leaves."""
    return st.recursive(
        leaves,
        lambda inner: st.dictionaries(names, inner, max_size=3) | st.lists(inner, max_size=3),
        max_leaves=8,
    )


json_objects = st.dictionaries(names, trees(scalars), max_size=4)

without_null = st.booleans() | st.integers(-2, 2) | st.sampled_from(["", "x", "y"])
objects_without_null = st.dictionaries(names, trees(without_null), max_size=4)


def some(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """An object with some of the fields."""
    return st.fixed_dictionaries({}, optional=fields)


def items(key: str, marks: str, **fields: st.SearchStrategy[Any]) -> st.SearchStrategy[list[Any]]:
    """A list whose items are told apart by a key."""
    item = st.fixed_dictionaries({key: st.sampled_from(list(marks))}, optional=fields)
    return st.lists(item, max_size=3, unique_by=lambda one: one[key])


words = st.sampled_from(["1", "2", "3"])


def maps(marks: str) -> st.SearchStrategy[dict[str, str]]:
    return st.dictionaries(st.sampled_from(list(marks)), words, max_size=3)


def pods(marks: str = "abcd") -> st.SearchStrategy[dict[str, Any]]:
    """Pods whose names, keys and values all come from these marks."""
    env = items("name", marks, value=words)
    ports = st.lists(some(name=words).map(lambda more: {"containerPort": ord(marks[0]), **more}), max_size=1)
    containers = items(
        "name",
        marks,
        image=words,
        env=env,
        ports=ports,
        resources=some(limits=maps(marks)),
        args=st.lists(words, max_size=2),
    )
    return st.fixed_dictionaries(
        {
            "apiVersion": st.just("v1"),
            "kind": st.just("Pod"),
            "metadata": st.fixed_dictionaries(
                {"name": st.just("p")},
                optional={
                    "labels": maps(marks),
                    "finalizers": st.lists(st.sampled_from(list(marks)), max_size=3, unique=True),
                    "ownerReferences": items("uid", marks, name=words),
                },
            ),
            "spec": some(containers=containers, volumes=items("name", marks, emptyDir=st.just({}))),
        }
    )
