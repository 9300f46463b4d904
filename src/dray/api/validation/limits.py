"""How much of everything an object may hold: every limit by name, and the table of them all.

Names have limits of their own, which belong to the names (`dray.values.names`); the table repeats them so
that one page shows everything.

Rules for this file: a number that a rule compares with stands here and nowhere else, and in `LIMITS`.
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
LARGEST_STEP_VALUE: Final = 2**63 - 1

# --- claims, templates and classes ---

REQUESTS_PER_CLAIM: Final = 32
ALTERNATIVES_PER_REQUEST: Final = 8
SELECTORS_PER_REQUEST: Final = 32
CONSTRAINTS_PER_CLAIM: Final = 32
CONFIGS_PER_CLAIM: Final = 32
TOLERATIONS: Final = 16
EXPRESSION_BYTES: Final = 10 * 1024
OPAQUE_BYTES: Final = 10 * 1024
LARGEST_COUNT: Final = 2**31 - 1

# --- what a claim got ---

RESULTS_PER_ALLOCATION: Final = 32
CONFIGS_PER_ALLOCATION: Final = 64
CONSUMERS_PER_CLAIM: Final = 256
DEVICE_DATA_BYTES: Final = 10 * 1024
CONDITIONS_PER_DEVICE: Final = 8
CONDITIONS_PER_RULE: Final = 8
WEBHOOK_SECONDS: Final = 30
MATCH_CONDITIONS: Final = 64
LARGEST_PORT: Final = 65_535
ADDRESSES_PER_DEVICE: Final = 16
INTERFACE_NAME_BYTES: Final = 256
HARDWARE_ADDRESS_BYTES: Final = 128
CONDITION_REASON_BYTES: Final = 1024
CONDITION_MESSAGE_BYTES: Final = 32 * 1024

# --- the classic path, and all objects ---

NODES_PER_CLASSIC_LIST: Final = 128
ANNOTATION_BYTES: Final = 256 * 1024


@dataclass(frozen=True, slots=True)
class Limit:
    """One limit: where it holds, the largest number allowed there, and what is counted."""

    where: str
    largest: int
    counted: str


LIMITS: Final = (
    Limit("driver name", names.MAX_DRIVER, "bytes"),
    Limit("pool name", names.MAX_POOL, "bytes, over DNS subdomains joined by `/`"),
    Limit("device, request, subrequest, counter and counter set name", names.MAX_LABEL, "bytes, a DNS label"),
    Limit("domain of an attribute", names.MAX_DOMAIN, "bytes"),
    Limit("id of an attribute", names.MAX_ID, "bytes, a C identifier"),
    Limit("devices in a slice", DEVICES_PER_SLICE, "devices"),
    Limit("devices in a slice with lists, taints or counters", RICH_DEVICES_PER_SLICE, "devices"),
    Limit("a device", ATTRIBUTES_AND_CAPACITIES_PER_DEVICE, "attributes and capacities"),
    Limit("attributes of a device", ATTRIBUTE_VALUES_PER_DEVICE, "values, each item of a list is one"),
    Limit("a list attribute", ITEMS_PER_LIST, "items"),
    Limit("a string or version in an attribute", ATTRIBUTE_VALUE_BYTES, "bytes"),
    Limit("taints of a device", TAINTS_PER_DEVICE, "taints"),
    Limit("shared counters of a slice", COUNTER_SETS_PER_SLICE, "counter sets"),
    Limit("counters of a set or a consumption", COUNTERS_PER_SET, "counters"),
    Limit("counter sets a device draws from", CONSUMPTIONS_PER_DEVICE, "counter sets"),
    Limit("binding conditions and binding failure conditions", BINDING_CONDITIONS, "names each"),
    Limit("valid values of a request policy", VALID_VALUES, "values"),
    Limit("a bound of a request policy with a step", LARGEST_STEP_VALUE, "units, or thousandths of one"),
    Limit("requests of a claim", REQUESTS_PER_CLAIM, "requests"),
    Limit("alternatives of a request", ALTERNATIVES_PER_REQUEST, "subrequests"),
    Limit("selectors of a request or class", SELECTORS_PER_REQUEST, "selectors"),
    Limit("constraints of a claim", CONSTRAINTS_PER_CLAIM, "constraints"),
    Limit("configuration of a claim or class", CONFIGS_PER_CLAIM, "entries"),
    Limit("tolerations of a request", TOLERATIONS, "tolerations"),
    Limit("a CEL expression", EXPRESSION_BYTES, "bytes"),
    Limit("opaque parameters", OPAQUE_BYTES, "bytes as written"),
    Limit("count of a request", LARGEST_COUNT, f"devices; more than {RESULTS_PER_ALLOCATION} never fit"),
    Limit("results of an allocation", RESULTS_PER_ALLOCATION, "devices or shares"),
    Limit("configuration of an allocation", CONFIGS_PER_ALLOCATION, "entries"),
    Limit("consumers of a claim", CONSUMERS_PER_CLAIM, "entries in `reservedFor`"),
    Limit("data a driver reports of a device", DEVICE_DATA_BYTES, "bytes as written"),
    Limit("conditions of an allocated device", CONDITIONS_PER_DEVICE, "conditions"),
    Limit("conditions of a taint rule", CONDITIONS_PER_RULE, "conditions"),
    Limit("match conditions of a webhook", MATCH_CONDITIONS, "conditions"),
    Limit("time a webhook may take", WEBHOOK_SECONDS, "seconds"),
    Limit("port of a webhook's service", LARGEST_PORT, "as its largest value"),
    Limit("addresses of an allocated device", ADDRESSES_PER_DEVICE, "addresses"),
    Limit("name of a network interface", INTERFACE_NAME_BYTES, "bytes"),
    Limit("hardware address of a network interface", HARDWARE_ADDRESS_BYTES, "bytes"),
    Limit("reason of a condition", CONDITION_REASON_BYTES, "bytes"),
    Limit("message of a condition", CONDITION_MESSAGE_BYTES, "bytes"),
    Limit("node lists of a classic claim", NODES_PER_CLASSIC_LIST, "nodes each"),
    Limit("annotations of an object", ANNOTATION_BYTES, "bytes, keys and values together"),
)
