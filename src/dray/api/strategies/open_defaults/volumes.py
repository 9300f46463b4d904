"""Defaults of volumes: sources that pods and volumes share, volumes, claims, and classes of storage."""

from __future__ import annotations

from typing import Final

from dray.api.strategies.open_defaults.rows import (
    DefaultsRow,
    DocumentDefault,
    DocumentRewrite,
    Holder,
    fill_text,
    prefix_rows,
)

VOLUME_SOURCE_ROWS: tuple[DefaultsRow, ...] = (
    DocumentDefault("hostPath.type", ""),
    fill_text("iscsi.iscsiInterface", "default"),
    fill_text("rbd.pool", "rbd"),
    fill_text("rbd.user", "admin"),
    fill_text("rbd.keyring", "/etc/ceph/keyring"),
    DocumentDefault("azureDisk.cachingMode", "ReadWrite"),
    DocumentDefault("azureDisk.fsType", "ext4"),
    DocumentDefault("azureDisk.readOnly", False),
    DocumentDefault("azureDisk.kind", "Shared"),
    fill_text("scaleIO.storageMode", "ThinProvisioned"),
    fill_text("scaleIO.fsType", "xfs"),
)
"""The defaults of volume sources that pods and persistent volumes share."""

_FILESYSTEM: Final = "Filesystem"


def _copy_data_source(spec: Holder) -> Holder:
    """Keep `dataSource` and `dataSourceRef` equal; a reference into another namespace has no older name."""
    older, newer = spec.get("dataSource"), spec.get("dataSourceRef")
    if isinstance(newer, dict) and older is None and not newer.get("namespace"):
        return {**spec, "dataSource": newer}
    if isinstance(older, dict) and newer is None:
        return {**spec, "dataSourceRef": older}
    return spec


VOLUME_CLAIM_SPEC_ROWS: tuple[DefaultsRow, ...] = (
    DocumentDefault("volumeMode", _FILESYSTEM),
    DocumentDefault("resources", {}),
)

VOLUME_CLAIM_ROWS: tuple[DefaultsRow, ...] = (
    *prefix_rows("spec", VOLUME_CLAIM_SPEC_ROWS),
    DocumentRewrite("spec", ("dataSource", "dataSourceRef"), _copy_data_source, "each from the other one"),
    DocumentDefault("status", {}),
    fill_text("status.phase", "Pending"),
)

VOLUME_ROWS: tuple[DefaultsRow, ...] = (
    fill_text("spec.persistentVolumeReclaimPolicy", "Retain"),
    DocumentDefault("spec.volumeMode", _FILESYSTEM),
    *prefix_rows("spec", VOLUME_SOURCE_ROWS),
    DocumentDefault("status", {}),
    fill_text("status.phase", "Pending"),
)

STORAGE_CLASS_ROWS: tuple[DefaultsRow, ...] = (
    DocumentDefault("reclaimPolicy", "Delete"),
    DocumentDefault("volumeBindingMode", "Immediate"),
)

CSI_DRIVER_ROWS: tuple[DefaultsRow, ...] = (
    DocumentDefault("spec", {}),
    DocumentDefault("spec.attachRequired", True),
    DocumentDefault("spec.podInfoOnMount", False),
    DocumentDefault("spec.storageCapacity", False),
    DocumentDefault("spec.fsGroupPolicy", "ReadWriteOnceWithFSType"),
    fill_text("spec.volumeLifecycleModes", ["Persistent"]),
    DocumentDefault("spec.requiresRepublish", False),
    DocumentDefault("spec.seLinuxMount", False),
    DocumentDefault("spec.preventPodSchedulingIfMissing", False),
)

VOLUME_ATTACHMENT_ROWS: tuple[DefaultsRow, ...] = (
    DocumentDefault("status", {}),
    DocumentDefault("status.attached", False),
)
