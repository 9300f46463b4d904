"""Lists, watches and writes claims with kr8s; says `done` when all went as expected."""

from __future__ import annotations

import sys
import warnings
from typing import Any

warnings.filterwarnings("ignore", message="Kubernetes version .* is not supported")

import kr8s  # noqa: E402
from kr8s.objects import ConfigMap, new_class  # noqa: E402


def main(namespace: str) -> None:
    api: Any = kr8s.api(namespace=namespace)
    assert api.version()["major"] == "1"
    assert "default" in [each.name for each in api.get("namespaces")]
    claims(api, namespace)
    settings(api, namespace)
    assert api.whoami() == "dray-admin"
    print("done")


def claims(api: Any, namespace: str) -> None:
    requests = [{"name": "gpu", "exactly": {"deviceClassName": "gpu.example.com"}}]
    claim: Any = new_class("ResourceClaim", version="resource.k8s.io/v1", namespaced=True)
    made = claim(
        {"metadata": {"name": "c", "namespace": namespace}, "spec": {"devices": {"requests": requests}}},
        api=api,
    )
    made.create()
    assert [each.name for each in api.get("resourceclaims.resource.k8s.io", namespace=namespace)] == ["c"]
    for event, found in api.watch("resourceclaims.resource.k8s.io", namespace=namespace):
        assert (event, found.name) == ("ADDED", "c")
        break
    made.label({"a": "b"})
    made.refresh()
    assert made.labels == {"a": "b"}
    made.delete()
    assert not made.exists()


def settings(api: Any, namespace: str) -> None:
    made: Any = ConfigMap({"metadata": {"name": "m", "namespace": namespace}, "data": {"a": "1"}}, api=api)
    made.create()
    made.patch({"data": {"b": "2"}})
    made.patch([{"op": "add", "path": "/data/c", "value": "3"}], type="json")
    made.refresh()
    assert dict(made.data) == {"a": "1", "b": "2", "c": "3"}
    made.delete()


if __name__ == "__main__":
    main(sys.argv[1])
