"""Rules of a preparation: it names a node and a claim, and never changes."""

from __future__ import annotations

from dray.api.fields import ROOT, invalid, required
from dray.api.preparation import Preparation
from dray.api.validate.rules import IMMUTABLE, Errors

_SPEC = ROOT.field("spec")
_CLAIM = _SPEC.field("claim")


def preparation(obj: Preparation) -> Errors:
    """What holds of a new preparation besides its metadata."""
    if not obj.spec.node_name:
        yield required(_SPEC.field("nodeName"), "the node that has the devices")
    for name in ("namespace", "name", "uid"):
        if not getattr(obj.spec.claim, name):
            yield required(_CLAIM.field(name), "the claim whose devices the node has")


def preparation_update(new: Preparation, old: Preparation) -> Errors:
    """A node that takes another claim writes another preparation."""
    if new.spec != old.spec:
        yield invalid(_SPEC, new.spec, IMMUTABLE)
