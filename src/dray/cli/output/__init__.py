"""Text output of commands: sanitized lines, messages, aligned tables, and progress bars. It must not read
input or call the packages behind the commands. `dray.cli.input` and `dray.cli.commands` import it.
"""
