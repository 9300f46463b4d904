PYTHON ?= python3
VENV := .venv
PY := $(VENV)/bin/python
test:
	$(PY) -m pytest
