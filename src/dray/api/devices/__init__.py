"""What the API knows about devices beyond their structs: the CEL variable `device` and its selectors, taint
rules applied to slices, and interning of equal devices. It contains no structs of objects, no validation
and no search, and reads feature gates only in `device_cel`. Validation, the allocator, lint and the
services may import it.
"""
