"""The agent of a node: it has devices prepared by their drivers, runs the containers, and gives devices back.

What is decided here is decided by pure functions over a record that is written down before anybody is called;
where devices and nodes come from is the business of others, and the API server is reached only through
`client`. `cluster` and `cli` import it, and no other service does.
"""
