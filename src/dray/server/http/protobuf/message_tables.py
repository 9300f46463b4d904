"""Field tables of the Kubernetes messages that the server reads.

The format is that of `dray.wire.protobuf`, where names are those of JSON, with three more modifiers: a type
with `*` keeps its zero value (Go has a pointer there), one with `{}` is a map from strings, and `+` puts the
fields of the message into its holder. `decoding.LEAF_DECODERS` decodes scalars, times, quantities and JSON;
they have no fields here.
"""

from __future__ import annotations

OBJECT_MESSAGES = """
ObjectMeta
  1 name string
  2 generateName string
  3 namespace string
  4 selfLink string
  5 uid string
  6 resourceVersion string
  7 generation int64
  8 creationTimestamp Time
  9 deletionTimestamp Time
  10 deletionGracePeriodSeconds *int64
  11 labels {}string
  12 annotations {}string
  13 ownerReferences []OwnerReference
  14 finalizers []string
  17 managedFields []ManagedFieldsEntry
OwnerReference
  1 kind string
  3 name string
  4 uid string
  5 apiVersion string
  6 controller *bool
  7 blockOwnerDeletion *bool
ManagedFieldsEntry
  1 manager string
  2 operation string
  3 apiVersion string
  4 time Time
  6 fieldsType string
  7 fieldsV1 Json
  8 subresource string
ListMeta
  1 selfLink string
  2 resourceVersion string
  3 continue string
  4 remainingItemCount *int64
Condition
  1 type string
  2 status string
  3 observedGeneration int64
  4 lastTransitionTime Time
  5 reason string
  6 message string
DeleteOptions
  1 gracePeriodSeconds *int64
  2 preconditions *Preconditions
  3 orphanDependents *bool
  4 propagationPolicy *string
  5 dryRun []string
  6 ignoreStoreReadErrorWithClusterBreakingPotential *bool
Preconditions
  1 uid *string
  2 resourceVersion *string
Status
  1 metadata ListMeta
  2 status string
  3 message string
  4 reason string
  5 details *StatusDetails
  6 code int32
StatusDetails
  1 name string
  2 group string
  3 kind string
  4 causes []StatusCause
  5 retryAfterSeconds int32
  6 uid string
StatusCause
  1 reason string
  2 message string
  3 field string

Lease
  1 metadata ObjectMeta
  2 spec LeaseSpec
LeaseSpec
  1 holderIdentity *string
  2 leaseDurationSeconds *int32
  3 acquireTime MicroTime
  4 renewTime MicroTime
  5 leaseTransitions *int32
  6 strategy *string
  7 preferredHolder *string

ObjectReference
  1 kind string
  2 namespace string
  3 name string
  4 uid string
  5 apiVersion string
  6 resourceVersion string
  7 fieldPath string
LocalObjectReference
  1 name string
CoreEvent
  1 metadata ObjectMeta
  2 involvedObject ObjectReference
  3 reason string
  4 message string
  5 source EventSource
  6 firstTimestamp Time
  7 lastTimestamp Time
  8 count int32
  9 type string
  10 eventTime MicroTime
  11 series *EventSeries
  12 action string
  13 related *ObjectReference
  14 reportingComponent string
  15 reportingInstance string
EventSource
  1 component string
  2 host string
EventSeries
  1 count int32
  2 lastObservedTime MicroTime
Event
  1 metadata ObjectMeta
  2 eventTime MicroTime
  3 series *EventSeries
  4 reportingController string
  5 reportingInstance string
  6 action string
  7 reason string
  8 regarding ObjectReference
  9 related *ObjectReference
  10 note string
  11 type string
  12 deprecatedSource EventSource
  13 deprecatedFirstTimestamp Time
  14 deprecatedLastTimestamp Time
  15 deprecatedCount int32

Binding
  1 metadata ObjectMeta
  2 target ObjectReference
Eviction
  1 metadata ObjectMeta
  2 deleteOptions *DeleteOptions
ConfigMap
  1 metadata ObjectMeta
  2 data {}string
  3 binaryData {}bytes
  4 immutable *bool
Secret
  1 metadata ObjectMeta
  2 data {}bytes
  3 type string
  4 stringData {}string
  5 immutable *bool
ServiceAccount
  1 metadata ObjectMeta
  2 secrets []ObjectReference
  3 imagePullSecrets []LocalObjectReference
  4 automountServiceAccountToken *bool
Namespace
  1 metadata ObjectMeta
  2 spec NamespaceSpec
  3 status NamespaceStatus
NamespaceSpec
  1 finalizers []string
NamespaceStatus
  1 phase string
  2 conditions []NamespaceCondition
NamespaceCondition
  1 type string
  2 status string
  4 lastTransitionTime Time
  5 reason string
  6 message string

ResourceQuota
  1 metadata ObjectMeta
  2 spec ResourceQuotaSpec
ResourceQuotaSpec
  1 hard {}Quantity
  2 scopes []string
Role
  1 metadata ObjectMeta
  2 rules []PolicyRule
ClusterRole
  1 metadata ObjectMeta
  2 rules []PolicyRule
  3 aggregationRule *AggregationRule
PolicyRule
  1 verbs []string
  2 apiGroups []string
  3 resources []string
  4 resourceNames []string
  5 nonResourceURLs []string
AggregationRule
  1 clusterRoleSelectors []LabelSelector
LabelSelector
  1 matchLabels {}string
  2 matchExpressions []SelectorRequirement
RoleBinding
  1 metadata ObjectMeta
  2 subjects []Subject
  3 roleRef RoleRef
Subject
  1 kind string
  2 apiGroup string
  3 name string
  4 namespace string
RoleRef
  1 apiGroup string
  2 kind string
  3 name string

TokenRequest
  1 metadata ObjectMeta
  2 spec TokenRequestSpec
TokenRequestSpec
  1 audiences []string
  3 boundObjectRef *BoundObjectReference
  4 expirationSeconds *int64
BoundObjectReference
  1 kind string
  2 apiVersion string
  3 name string
  4 uid string
TokenReview
  1 metadata ObjectMeta
  2 spec TokenReviewSpec
TokenReviewSpec
  1 token string
  2 audiences []string
SelfSubjectReview
  1 metadata ObjectMeta
SelfSubjectAccessReview
  1 metadata ObjectMeta
  2 spec SelfSubjectAccessReviewSpec
SelfSubjectAccessReviewSpec
  1 resourceAttributes *ResourceAttributes
  2 nonResourceAttributes *NonResourceAttributes
SubjectAccessReview
  1 metadata ObjectMeta
  2 spec SubjectAccessReviewSpec
SubjectAccessReviewSpec
  1 resourceAttributes *ResourceAttributes
  2 nonResourceAttributes *NonResourceAttributes
  3 user string
  4 groups []string
  5 extra {}Strings
  6 uid string
SelfSubjectRulesReview
  1 metadata ObjectMeta
  2 spec SelfSubjectRulesReviewSpec
SelfSubjectRulesReviewSpec
  1 namespace string
ResourceAttributes
  1 namespace string
  2 verb string
  3 group string
  4 version string
  5 resource string
  6 subresource string
  7 name string
  8 fieldSelector *SelectorAttributes
  9 labelSelector *SelectorAttributes
SelectorAttributes
  1 rawSelector string
  2 requirements []SelectorRequirement
SelectorRequirement
  1 key string
  2 operator string
  3 values []string
NonResourceAttributes
  1 path string
  2 verb string
"""

CLAIM_MESSAGES = """
ResourceClaim
  1 metadata ObjectMeta
  2 spec ResourceClaimSpec
  3 status ResourceClaimStatus
ResourceClaimSpec
  1 devices DeviceClaim
DeviceClaim
  1 requests []DeviceRequest
  2 constraints []DeviceConstraint
  3 config []DeviceClaimConfiguration
DeviceRequest
  1 name string
  2 exactly *ExactDeviceRequest
  3 firstAvailable []DeviceSubRequest
ExactDeviceRequest
  1 deviceClassName string
  2 selectors []DeviceSelector
  3 allocationMode string
  4 count int64
  5 adminAccess *bool
  6 tolerations []DeviceToleration
  7 capacity *CapacityRequirements
DeviceSubRequest
  1 name string
  2 deviceClassName string
  3 selectors []DeviceSelector
  4 allocationMode string
  5 count int64
  6 tolerations []DeviceToleration
  7 capacity *CapacityRequirements
DeviceSelector
  1 cel *CELDeviceSelector
CELDeviceSelector
  1 expression string
DeviceToleration
  1 key string
  2 operator string
  3 value string
  4 effect string
  5 tolerationSeconds *int64
CapacityRequirements
  1 requests {}Quantity
DeviceConstraint
  1 requests []string
  2 matchAttribute *string
  3 distinctAttribute *string
DeviceClaimConfiguration
  1 requests []string
  2 deviceConfiguration +DeviceConfiguration
DeviceConfiguration
  1 opaque *OpaqueDeviceConfiguration
OpaqueDeviceConfiguration
  1 driver string
  2 parameters Json
ResourceClaimStatus
  1 allocation *AllocationResult
  2 reservedFor []ConsumerReference
  4 devices []AllocatedDeviceStatus
AllocationResult
  1 devices DeviceAllocationResult
  3 nodeSelector *NodeSelector
  5 allocationTimestamp Time
DeviceAllocationResult
  1 results []DeviceRequestAllocationResult
  2 config []DeviceAllocationConfiguration
DeviceRequestAllocationResult
  1 request string
  2 driver string
  3 pool string
  4 device string
  5 adminAccess *bool
  6 tolerations []DeviceToleration
  7 bindingConditions []string
  8 bindingFailureConditions []string
  9 shareID *string
  10 consumedCapacity {}Quantity
DeviceAllocationConfiguration
  1 source string
  2 requests []string
  3 deviceConfiguration +DeviceConfiguration
ConsumerReference
  1 apiGroup string
  3 resource string
  4 name string
  5 uid string
AllocatedDeviceStatus
  1 driver string
  2 pool string
  3 device string
  4 conditions []Condition
  5 data Json
  6 networkData *NetworkDeviceData
  7 shareID *string
NetworkDeviceData
  1 interfaceName string
  2 ips []string
  3 hardwareAddress string
NodeSelector
  1 nodeSelectorTerms []NodeSelectorTerm
NodeSelectorTerm
  1 matchExpressions []NodeSelectorRequirement
  2 matchFields []NodeSelectorRequirement
NodeSelectorRequirement
  1 key string
  2 operator string
  3 values []string
"""
