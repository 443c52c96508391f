"""Packages of users of ExecuTorch, installed, with their imports changed as `port` changes a user's own files."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest
from tests.zoo.torchvision_models import load_without_operators

from delegraph_executorch.port import main

HERE = Path(__file__).parent

os.environ |= {"HF_HUB_OFFLINE": "1", "YOLO_OFFLINE": "true"}
load_without_operators()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All are `executorch_users`: they need packages of an environment of their own."""
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.executorch_users)
            item.add_marker(pytest.mark.filterwarnings("ignore"))  # of packages that are not ours


@pytest.fixture(scope="session")
def ported_package(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Copies an installed package, ports the copy, and has it imported in place of the installed one."""
    scratch = tmp_path_factory.mktemp("ported")
    sys.path.insert(0, str(scratch))

    def port(name: str) -> Path:
        spec = find_spec(name)
        if spec is None or not spec.submodule_search_locations:
            pytest.skip(f"{name} is not here: run `make test-executorch-users`")
        assert not any(module.partition(".")[0] == name for module in sys.modules), "as installed, it is imported"
        (folder,) = spec.submodule_search_locations
        shutil.copytree(folder, scratch / name, ignore=shutil.ignore_patterns("__pycache__"))
        assert main([str(scratch / name)]) == 0
        return scratch / name

    return port
