"""An operator made with kopf: notes every claim it sees in an annotation and in its status."""

from __future__ import annotations

from typing import Any

import kopf


@kopf.on.startup()
def quietly(settings: Any, **_: Any) -> None:
    settings.posting.enabled = True
    settings.persistence.progress_storage = kopf.AnnotationsProgressStorage()
    settings.persistence.diffbase_storage = kopf.AnnotationsDiffBaseStorage()


@kopf.on.create("resource.k8s.io", "v1", "resourceclaims")
def greeted(name: str, patch: Any, **_: Any) -> str:
    patch.metadata.annotations["example.com/greeted"] = "yes"
    return f"hello {name}"


@kopf.on.delete("resource.k8s.io", "v1", "resourceclaims")
def mourned(name: str, **_: Any) -> None:
    print(f"mourned {name}", flush=True)


@kopf.on.event("resource.k8s.io", "v1", "resourceslices")
def seen(name: str, type: str | None, **_: Any) -> None:
    print(f"slice {name} {type}", flush=True)
