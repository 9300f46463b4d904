"""The unit tests in other interpreters: which fail is told, and the exit code says so."""

from __future__ import annotations

import sys

import pytest

from tools import python_tests


@pytest.fixture
def ran(monkeypatch, tmp_path):
    found = []
    monkeypatch.setattr(python_tests, "prepare_environment", lambda program, version: tmp_path / version)

    def run_tests(python, arguments):
        found.append(python.name)
        return python.name != "3.13.9"

    monkeypatch.setattr(python_tests, "run_tests", run_tests)
    return found


def test_each_interpreter_is_tried_and_a_failure_is_told(ran, monkeypatch, capsys):
    versions = {"a": "3.12.1", "b": "3.13.9", "c": "3.14.0"}
    monkeypatch.setattr(python_tests, "ask_version", versions.get)
    assert python_tests.main(["a", "b", "c"]) == 1
    assert ran == ["3.12.1", "3.13.9", "3.14.0"]
    assert capsys.readouterr().out.splitlines()[-3:] == [
        "[ok] Python 3.12.1",
        "[no] Python 3.13.9",
        "[ok] Python 3.14.0",
    ]


def test_versions_that_are_not_found_are_named(ran, monkeypatch, capsys):
    monkeypatch.setattr(python_tests, "find_interpreters", lambda: {"3.11": sys.executable})
    assert python_tests.main([]) == 0
    assert "[--] Python 3.14: not found" in capsys.readouterr().out


def test_an_environment_that_cannot_be_prepared_is_a_failure(monkeypatch, capsys):
    def refuse(program, version):
        raise OSError("no such program")

    monkeypatch.setattr(python_tests, "prepare_environment", refuse)
    assert python_tests.main(["/nowhere/python3"]) == 1
    assert "cannot prepare an environment: no such program" in capsys.readouterr().err
