"""Limits of API objects: every limit by name, and the table of all of them.

Limits of names belong to the names (`dray.values.names`); the table repeats them so that one page shows
everything.

Rules for this file: a limit that a validation rule enforces is defined here, or in `dray.values.names`, and
listed in `LIMITS`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from dray.values import names

# --- slices and devices ---

DEVICES_PER_SLICE: Final = 128
RICH_DEVICES_PER_SLICE: Final = 64
ATTRIBUTES_AND_CAPACITIES_PER_DEVICE: Final = 32
ATTRIBUTE_VALUES_PER_DEVICE: Final = 48
ITEMS_PER_LIST: Final = 64
ATTRIBUTE_VALUE_BYTES: Final = 64
TAINTS_PER_DEVICE: Final = 16
COUNTER_SETS_PER_SLICE: Final = 8
COUNTERS_PER_SET: Final = 32
CONSUMPTIONS_PER_DEVICE: Final = 2
BINDING_CONDITIONS: Final = 4
VALID_VALUES: Final = 10
MAX_STEP_VALUE: Final = 2**63 - 1

# --- claims, templates and classes ---

REQUESTS_PER_CLAIM: Final = 32
ALTERNATIVES_PER_REQUEST: Final = 8
SELECTORS_PER_REQUEST: Final = 32
CONSTRAINTS_PER_CLAIM: Final = 32
CONFIGS_PER_CLAIM: Final = 32
TOLERATIONS: Final = 16
EXPRESSION_BYTES: Final = 10 * 1024
OPAQUE_BYTES: Final = 10 * 1024
MAX_COUNT: Final = 2**31 - 1

# --- status of a claim ---

RESULTS_PER_ALLOCATION: Final = 32
CONFIGS_PER_ALLOCATION: Final = 64
CONSUMERS_PER_CLAIM: Final = 256
DEVICE_DATA_BYTES: Final = 10 * 1024
CONDITIONS_PER_DEVICE: Final = 8
CONDITIONS_PER_RULE: Final = 8
WEBHOOK_SECONDS: Final = 30
MATCH_CONDITIONS: Final = 64
MAX_PORT: Final = 65_535
ADDRESSES_PER_DEVICE: Final = 16
INTERFACE_NAME_BYTES: Final = 256
HARDWARE_ADDRESS_BYTES: Final = 128
CONDITION_REASON_BYTES: Final = 1024
CONDITION_MESSAGE_BYTES: Final = 32 * 1024

# --- the classic path, and all objects ---

NODES_PER_CLASSIC_LIST: Final = 128
ANNOTATION_BYTES: Final = 256 * 1024
CONFIG_DATA_BYTES: Final = 1024 * 1024
REQUESTS_PER_TRANSACTION: Final = 64
PATH_BYTES_PER_REQUEST: Final = 2048


@dataclass(frozen=True, slots=True)
class FieldLimit:
    """One limit: what it applies to, the largest number allowed, and what is counted."""

    subject: str
    maximum: int
    unit: str


LIMITS: Final = (
    FieldLimit("driver name", names.MAX_DRIVER, "bytes"),
    FieldLimit("pool name", names.MAX_POOL, "bytes, over DNS subdomains joined by `/`"),
    FieldLimit(
        "device, request, subrequest, counter and counter set name", names.MAX_LABEL, "bytes, a DNS label"
    ),
    FieldLimit("domain of an attribute", names.MAX_DOMAIN, "bytes"),
    FieldLimit("id of an attribute", names.MAX_ID, "bytes, a C identifier"),
    FieldLimit("devices in a slice", DEVICES_PER_SLICE, "devices"),
    FieldLimit("devices in a slice with lists, taints or counters", RICH_DEVICES_PER_SLICE, "devices"),
    FieldLimit("a device", ATTRIBUTES_AND_CAPACITIES_PER_DEVICE, "attributes and capacities"),
    FieldLimit("attributes of a device", ATTRIBUTE_VALUES_PER_DEVICE, "values, each item of a list is one"),
    FieldLimit("a list attribute", ITEMS_PER_LIST, "items"),
    FieldLimit("a string or version in an attribute", ATTRIBUTE_VALUE_BYTES, "bytes"),
    FieldLimit("taints of a device", TAINTS_PER_DEVICE, "taints"),
    FieldLimit("shared counters of a slice", COUNTER_SETS_PER_SLICE, "counter sets"),
    FieldLimit("counters of a set or a consumption", COUNTERS_PER_SET, "counters"),
    FieldLimit("counter sets a device draws from", CONSUMPTIONS_PER_DEVICE, "counter sets"),
    FieldLimit("binding conditions and binding failure conditions", BINDING_CONDITIONS, "names each"),
    FieldLimit("valid values of a request policy", VALID_VALUES, "values"),
    FieldLimit("a bound of a request policy with a step", MAX_STEP_VALUE, "units, or thousandths of one"),
    FieldLimit("requests of a claim", REQUESTS_PER_CLAIM, "requests"),
    FieldLimit("alternatives of a request", ALTERNATIVES_PER_REQUEST, "subrequests"),
    FieldLimit("selectors of a request or class", SELECTORS_PER_REQUEST, "selectors"),
    FieldLimit("constraints of a claim", CONSTRAINTS_PER_CLAIM, "constraints"),
    FieldLimit("configuration of a claim or class", CONFIGS_PER_CLAIM, "entries"),
    FieldLimit("tolerations of a request", TOLERATIONS, "tolerations"),
    FieldLimit("a CEL expression", EXPRESSION_BYTES, "bytes"),
    FieldLimit("opaque parameters", OPAQUE_BYTES, "bytes as written"),
    FieldLimit("count of a request", MAX_COUNT, f"devices; more than {RESULTS_PER_ALLOCATION} never fit"),
    FieldLimit("results of an allocation", RESULTS_PER_ALLOCATION, "devices or shares"),
    FieldLimit("configuration of an allocation", CONFIGS_PER_ALLOCATION, "entries"),
    FieldLimit("consumers of a claim", CONSUMERS_PER_CLAIM, "entries in `reservedFor`"),
    FieldLimit("data a driver reports of a device", DEVICE_DATA_BYTES, "bytes as written"),
    FieldLimit("conditions of an allocated device", CONDITIONS_PER_DEVICE, "conditions"),
    FieldLimit("conditions of a taint rule", CONDITIONS_PER_RULE, "conditions"),
    FieldLimit("match conditions of a webhook", MATCH_CONDITIONS, "conditions"),
    FieldLimit("time a webhook may take", WEBHOOK_SECONDS, "seconds"),
    FieldLimit("port of a webhook's service", MAX_PORT, "as its largest value"),
    FieldLimit("addresses of an allocated device", ADDRESSES_PER_DEVICE, "addresses"),
    FieldLimit("name of a network interface", INTERFACE_NAME_BYTES, "bytes"),
    FieldLimit("hardware address of a network interface", HARDWARE_ADDRESS_BYTES, "bytes"),
    FieldLimit("reason of a condition", CONDITION_REASON_BYTES, "bytes"),
    FieldLimit("message of a condition", CONDITION_MESSAGE_BYTES, "bytes"),
    FieldLimit("node lists of a classic claim", NODES_PER_CLASSIC_LIST, "nodes each"),
    FieldLimit("annotations of an object", ANNOTATION_BYTES, "bytes, keys and values together"),
    FieldLimit("data of a ConfigMap or Secret", CONFIG_DATA_BYTES, "bytes, all values together"),
    FieldLimit("requests of a transaction", REQUESTS_PER_TRANSACTION, "requests"),
    FieldLimit("path of a request in a transaction", PATH_BYTES_PER_REQUEST, "bytes, with the query"),
)
