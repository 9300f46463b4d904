"""The webhook's Service and the configuration by which API servers call it.

The webhook issues its certificate itself and puts the authority into the configuration. Or the cluster does:
then its issuer puts the certificate into the secret that the Deployment mounts, and the authority into the
configuration (`ca_bundle`).
"""

from __future__ import annotations

from dray.driver.deploy.objects import (
    ADMISSION_VERSION,
    CLASSIC_GROUP,
    RESOURCE_GROUP,
    RESOURCE_VERSIONS,
    Document,
    DriverObjects,
)
from dray.webhook_server import VALIDATE_PATH


def build_service(objects: DriverObjects) -> Document:
    """Build the Service through which API servers reach the webhook."""
    port = {"name": "webhook", "port": 443, "targetPort": "webhook"}
    spec = {"selector": objects.build_labels("webhook"), "ports": [port]}
    return objects.build_namespaced_object("Service", "v1", "webhook") | {"spec": spec}


def build_webhook_configuration(objects: DriverObjects) -> Document:
    """Build the webhook configuration for claims, templates and classes."""
    group, versions = (
        (CLASSIC_GROUP, ["v1alpha1"]) if objects.is_classic else (RESOURCE_GROUP, RESOURCE_VERSIONS)
    )
    kinds = (
        ["resourceclaims", "resourceclasses"]
        if objects.is_classic
        else ["resourceclaims", "resourceclaimtemplates", "deviceclasses"]
    )
    rule = {
        "apiGroups": [group],
        "apiVersions": versions,
        "operations": ["CREATE", "UPDATE"],
        "resources": kinds,
        "scope": "*",  # without it, kubectl would report a change at every apply
    }
    service = {
        "namespace": objects.target.namespace,
        "name": objects.format_name("webhook"),
        "path": VALIDATE_PATH,
    }
    bundle = {"caBundle": objects.target.ca_bundle} if objects.target.ca_bundle else {}
    webhook = {
        "name": f"parameters.{objects.driver}",
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        # The driver checks parameters again when it prepares: an unavailable webhook must not stop a cluster.
        "failurePolicy": "Ignore",
        "timeoutSeconds": 5,
        "clientConfig": {"service": service} | bundle,
        "rules": [rule],
    }
    configuration = objects.build_object(
        "ValidatingWebhookConfiguration", ADMISSION_VERSION, objects.webhook_configuration_name
    )
    return configuration | {"webhooks": [webhook]}
