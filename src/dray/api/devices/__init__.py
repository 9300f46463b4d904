"""Functions on devices: the CEL environment and analysis of selectors, application of taint rules, interning.

The package contains no structs of objects, no validation and no search, and reads feature gates only in
`device_cel`. Validation, the allocator, explain, lint and the services may import it.
"""
