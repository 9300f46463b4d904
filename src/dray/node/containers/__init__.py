"""Configuration of a container at its start: command and environment variables, CDI edits, and the files of
its log; the runtimes are below in `runtime`. It knows neither claims nor drivers nor restart policies. The
pod workers, the agent and its log endpoint import it.
"""
