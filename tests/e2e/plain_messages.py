"""The messages between kubelet and drivers once more, from the names and numbers that Kubernetes published.

Nothing here comes from dray, so whoever is built on it can only be understood if the wire is right.
"""

from __future__ import annotations

from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_FIELD = descriptor_pb2.FieldDescriptorProto
_TYPES = {"string": _FIELD.TYPE_STRING, "bool": _FIELD.TYPE_BOOL, "int64": _FIELD.TYPE_INT64}

REGISTRATION = "pluginregistration.Registration"
DRA = "k8s.io.kubelet.pkg.apis.dra.{}.DRAPlugin"
HEALTH = "{}.DRAResourceHealth"
CLASSIC = "cdi.k8s.io.v1alpha1.ResourcePlugin"

_REGISTRATION = {
    "InfoRequest": "",
    "PluginInfo": "1 string type, 2 string name, 3 string endpoint, 4 string* supported_versions",
    "RegistrationStatus": "1 bool plugin_registered, 2 string error",
    "RegistrationStatusResponse": "",
}
_DRA = {
    "Claim": "1 string namespace, 2 string uid, 3 string name",
    "Device": "1 string* request_names, 2 string pool_name, 3 string device_name, 4 string* cdi_device_ids",
    "NodePrepareResourcesRequest": "1 Claim* claims",
    "NodePrepareResourceResponse": "1 Device* devices, 2 string error",
    "NodePrepareResourcesResponse": "1 NodePrepareResourceResponse{} claims",
    "NodeUnprepareResourcesRequest": "1 Claim* claims",
    "NodeUnprepareResourceResponse": "1 string error",
    "NodeUnprepareResourcesResponse": "1 NodeUnprepareResourceResponse{} claims",
}
_DRA_V1 = _DRA | {"Device": f"{_DRA['Device']}, 5 string share_id"}
_HEALTH = {
    "NodeWatchResourcesRequest": "",
    "DeviceIdentifier": "1 string pool_name, 2 string device_name",
    # An enum and a number of 64 bits are the same on the wire.
    "DeviceHealth": "1 DeviceIdentifier device, 2 int64 health, 3 int64 last_updated_time, "
    "4 int64 health_check_timeout_seconds, 5 string message",
    "NodeWatchResourcesResponse": "1 DeviceHealth* devices",
}
_CLASSIC = {
    "NodePrepareResourceRequest": "1 string resource_uid",
    "NodePrepareResourceResponse": "1 string* cdi_device",
    "NodeUnprepareResourceRequest": "1 string resource_uid, 2 string* cdi_device",
    "NodeUnprepareResourceResponse": "",
}
_FILES = {
    "pluginregistration": _REGISTRATION,
    "k8s.io.kubelet.pkg.apis.dra.v1": _DRA_V1,
    "k8s.io.kubelet.pkg.apis.dra.v1beta1": _DRA,
    "v1": _HEALTH,
    "v1beta1": _HEALTH,
    "v1alpha1": _HEALTH,
    "cdi.k8s.io.v1alpha1": _CLASSIC,
}


def _field(message: Any, package: str, text: str) -> None:
    number, kind, name = text.split()
    repeated = kind.endswith(("*", "{}"))
    kind, mapped = kind.removesuffix("*").removesuffix("{}"), kind.endswith("{}")
    if mapped:
        entry = message.nested_type.add(name=f"{name.capitalize()}Entry")
        entry.options.map_entry = True
        _field(entry, package, "1 string key")
        _field(entry, package, f"2 {kind} value")
        kind = f"{message.name}.{entry.name}"
    field = message.field.add(name=name, number=int(number))
    field.label = _FIELD.LABEL_REPEATED if repeated else _FIELD.LABEL_OPTIONAL
    if kind in _TYPES:
        field.type = _TYPES[kind]
    else:
        field.type, field.type_name = _FIELD.TYPE_MESSAGE, f".{package}.{kind}"


def _pool() -> Any:
    pool = descriptor_pool.DescriptorPool()
    for package, messages in _FILES.items():
        file = descriptor_pb2.FileDescriptorProto(name=f"{package}.proto", package=package, syntax="proto3")
        for name, fields in messages.items():
            message = file.message_type.add(name=name)
            for text in fields.split(", ") if fields else ():
                _field(message, package, text)
        pool.Add(file)
    return pool


_POOL = _pool()


def message(service: str, name: str) -> Any:
    """The class of a message that belongs to a service."""
    package = service.rpartition(".")[0]
    return message_factory.GetMessageClass(_POOL.FindMessageTypeByName(f"{package}.{name}"))


METHODS = {
    "GetInfo": ("InfoRequest", "PluginInfo"),
    "NotifyRegistrationStatus": ("RegistrationStatus", "RegistrationStatusResponse"),
    "NodePrepareResources": ("NodePrepareResourcesRequest", "NodePrepareResourcesResponse"),
    "NodeUnprepareResources": ("NodeUnprepareResourcesRequest", "NodeUnprepareResourcesResponse"),
    "NodePrepareResource": ("NodePrepareResourceRequest", "NodePrepareResourceResponse"),
    "NodeUnprepareResource": ("NodeUnprepareResourceRequest", "NodeUnprepareResourceResponse"),
    "NodeWatchResources": ("NodeWatchResourcesRequest", "NodeWatchResourcesResponse"),
}
"""What goes in and what comes out of each method."""
