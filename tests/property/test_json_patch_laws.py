"""Properties of JSON patches: a diff leads from one document to the other, and operations can be undone."""

from __future__ import annotations

import contextlib
import copy
from typing import Any

from hypothesis import assume, given
from hypothesis import strategies as st

from dray.server.patch import json_patch
from dray.server.patch.errors import PatchError
from tests.property.strategies.patches import json_objects, names, scalars, trees


def step(name: str) -> str:
    return "/" + name.replace("~", "~0").replace("/", "~1")


def difference(a: Any, b: Any, path: str = "") -> list[dict[str, Any]]:
    """A patch that leads from one value to another."""
    if isinstance(a, dict) and isinstance(b, dict):
        patch = [{"op": "remove", "path": path + step(name)} for name in a if name not in b]
        for name, value in b.items():
            if name not in a:
                patch.append({"op": "add", "path": path + step(name), "value": value})
            else:
                patch += difference(a[name], value, path + step(name))
        return patch
    if isinstance(a, list) and isinstance(b, list):
        short = min(len(a), len(b))
        patch = [one for i in range(short) for one in difference(a[i], b[i], f"{path}/{i}")]
        patch += [{"op": "remove", "path": f"{path}/-1"} for _ in a[short:]]
        return patch + [{"op": "add", "path": f"{path}/-", "value": value} for value in b[short:]]
    return [] if a == b and type(a) is type(b) else [{"op": "replace", "path": path, "value": b}]


def places(value: Any, path: str = "") -> list[str]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(place for name, item in inner for place in places(item, path + step(str(name))))]


def value_at(document: Any, path: str) -> Any:
    for token in json_patch.parse_pointer(path):
        document = document[int(token)] if isinstance(document, list) else document[token]
    return document


@given(json_objects, json_objects)
def test_a_difference_leads_to_the_other_document(a, b):
    before = copy.deepcopy(a)
    assert json_patch.apply(a, difference(a, b)) == b
    assert a == before


@given(json_objects, json_objects, json_objects)
def test_two_patches_in_a_row_are_one_patch(a, b, c):
    assert json_patch.apply(a, difference(a, b) + difference(b, c)) == c


@given(st.data(), json_objects)
def test_an_existing_value_passes_its_test_operation(data, document):
    place = data.draw(st.sampled_from(places(document)))
    patch = [{"op": "test", "path": place, "value": value_at(document, place)}]
    assert json_patch.apply(document, patch) == document


@given(json_objects, names, trees(scalars))
def test_what_is_added_can_be_removed(document, name, value):
    assume(name not in document)
    there, gone = {"op": "add", "path": step(name), "value": value}, {"op": "remove", "path": step(name)}
    assert json_patch.apply(document, [there, gone]) == document


@given(st.data(), json_objects)
def test_what_is_moved_can_be_moved_back(data, document):
    assume(document)
    name = data.draw(st.sampled_from(sorted(document)))
    away = {"op": "move", "from": step(name), "path": "/elsewhere"}
    back = {"op": "move", "from": "/elsewhere", "path": step(name)}
    assert json_patch.apply(document, [away, back]) == document


operations = st.fixed_dictionaries(
    {"op": st.sampled_from(["add", "remove", "replace", "move", "copy", "test"])},
    optional={
        "path": st.lists(names | st.sampled_from(["-", "-1", "1"]), max_size=3).map(
            lambda tokens: "".join(map(step, tokens))
        ),
        "from": st.lists(names, max_size=2).map(lambda tokens: "".join(map(step, tokens))),
        "value": trees(scalars),
    },
)


@given(json_objects, st.lists(operations, max_size=6))
def test_any_patch_is_applied_or_refused_and_changes_nothing_given(document, patch):
    before = copy.deepcopy((document, patch))
    with contextlib.suppress(PatchError):
        assert isinstance(json_patch.apply(document, patch), dict)
    assert (document, patch) == before
