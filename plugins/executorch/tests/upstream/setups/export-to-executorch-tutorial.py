"""Backends that the page imports from ExecuTorch's tests lie among its ported tests."""

import importlib
import tempfile
from pathlib import Path

import delegraph_executorch.exir.backend

_scratch = Path(tempfile.mkdtemp())
_suite = importlib.import_module("plugins.executorch.tests.upstream.suite")
_suite.port_suite(_scratch)
delegraph_executorch.exir.backend.__path__.append(str(_scratch / "delegraph_executorch" / "exir" / "backend"))
