"""Local caches of server objects: the informer (list, then watch), its indexer with listeners, and the
decoding of one watch stream into batches. It must not decide what a change means or write objects.
Scheduler, controllers, node agents, drivers and `dray.cluster` import it.
"""
