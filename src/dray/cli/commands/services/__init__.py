"""Commands that run services until interrupted (up, server, scheduler, controller, node) and the server's
backup, restore and credentials, with the options they share. They must not wire services themselves, which
is the task of `dray.cluster`. Only the command table imports it.
"""
