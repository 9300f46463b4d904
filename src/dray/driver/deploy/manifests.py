"""Manifests that deploy a driver to a cluster, as documents for kubectl.

    python -m my_driver manifests --image registry.example.com/gpu:1.0 | kubectl apply -f -

Theory of operation: a driver has up to three parts, each with an account and rights of its own: one on every
node, a controller (classic drivers, KEP-3063), and a webhook when there is a schema of parameters.

Rules for this file: pure; the same driver gives the same documents.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from dray.driver.base import ClassicDriver, Driver
from dray.driver.deploy.objects import (
    CLASSIC_GROUP,
    RESOURCE_GROUP,
    DeploymentTarget,
    Document,
    DriverObjects,
    shorten_driver_name,
)
from dray.driver.deploy.rbac import (
    CERTIFICATE_RULES,
    CLASSIC_NODE_RULES,
    CLASSIC_WEBHOOK_RULES,
    CONTROLLER_RULES,
    NODE_RULES,
    build_account,
    build_slice_policy,
)
from dray.driver.deploy.webhook_configuration import build_service, build_webhook_configuration
from dray.driver.deploy.workloads import build_daemon_set, build_deployment, build_webhook_deployment
from dray.errors import InputError
from dray.values.names import check_driver_name

_POD_SECURITY_LABEL: Final = "pod-security.kubernetes.io/enforce"


def build_manifests(driver: Driver, target: DeploymentTarget) -> list[Document]:
    """Build all documents, in an order in which they can be applied."""
    if not target.image:
        raise InputError("which image? The driver's program must be its entry point")
    if not driver.name or check_driver_name(driver.name):
        raise InputError(f"`{driver.name}` is not the name of a driver; expected one like `gpu.example.com`")
    if not target.namespace:
        target = replace(target, namespace=shorten_driver_name(driver.name))
    return list(_build_documents(driver, DriverObjects(driver, target)))


def _build_documents(driver: Driver, objects: DriverObjects) -> Iterator[Document]:
    labels = {_POD_SECURITY_LABEL: "privileged"}
    yield objects.build_object("Namespace", "v1", objects.target.namespace, labels=labels)
    yield from build_account(objects, "node", CLASSIC_NODE_RULES if objects.is_classic else NODE_RULES)
    yield build_daemon_set(objects)
    if isinstance(driver, ClassicDriver):
        if driver.controller is not None:
            yield from build_account(objects, "controller", CONTROLLER_RULES)
            yield build_deployment(objects, "controller", ["controller", "--elect"], replicas=2)
        resource_class = objects.build_object("ResourceClass", f"{CLASSIC_GROUP}/v1alpha1", driver.name)
        yield resource_class | {"driverName": driver.name}
    else:
        yield from build_slice_policy(objects)
        selector = {"cel": {"expression": f'device.driver == "{driver.name}"'}}
        device_class = objects.build_object("DeviceClass", f"{RESOURCE_GROUP}/v1", driver.name)
        yield device_class | {"spec": {"selectors": [selector]}}
    if driver.parameters is not None:
        rules = CLASSIC_WEBHOOK_RULES if objects.is_classic else ()
        rules += CERTIFICATE_RULES if objects.target.issues_certificate else ()
        yield from build_account(objects, "webhook", rules)
        yield build_webhook_deployment(objects)
        yield build_service(objects)
        yield build_webhook_configuration(objects)
