"""What strangers' code imports goes on working: each public name of the last release is there, or warns of its place.

tests/released_names.txt has the names, `module name` in each line, as docs/api.md had them; a release renews it
(`pytest tests/test_released_names.py --renew`, after the tag), and nothing else does.
"""

from __future__ import annotations

import subprocess
import sys
import warnings
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tools.site.api_page import PUBLIC, names_of

import delegraph
from delegraph.errors import DelegateInvalidCompatibility
from delegraph.former_modules import FORMER_MODULES
from delegraph.interfaces import BlobStamp, Verdict
from delegraph.plugins import PluginDeprecationWarning, PluginRegistry

LIST = Path(__file__).parent / "released_names.txt"


def test_every_released_name_is_there(request: pytest.FixtureRequest) -> None:
    if request.config.getoption("--renew"):
        LIST.write_text("".join(f"{module} {name}\n" for module in PUBLIC for name in names_of(module)), "utf-8")
    gone = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PluginDeprecationWarning)
        for line in LIST.read_text("utf-8").splitlines():
            module, name = line.split()
            try:
                getattr(import_module(module), name)
            except (ImportError, AttributeError):
                gone.append(f"{module}.{name}")
    assert not gone, (
        f"{', '.join(gone)} went: give a moved module a row in delegraph/former_modules.py, another name a row in its"
        " package's lazy_names(…, deprecated=…), and a parameter `former_parameter` (docs/plugin-api.md)"
    )


@pytest.mark.parametrize(
    "written",
    [
        "from delegraph.runtime.kernels import KernelLibrary",  # as `codegen` wrote it
        "from delegraph.runtime.backends import BackendInterface, Compatibility, Verdict",
        "from delegraph.aot.partition import DelegationSpec, Partitioner, PartitionResult",
        "from delegraph.aot.backend import BackendDetails, CompileSpec, PreprocessResult",
        "from delegraph.aot.delegation.backend_details import BackendDetails",
        "from delegraph.plugins.stamp import BlobStamp",
    ],
)
def test_imports_of_modules_that_moved(written: str) -> None:
    scope: dict[str, Any] = {}
    with pytest.warns(
        PluginDeprecationWarning, match=r"delegraph\..* is deprecated: use delegraph\.interfaces\."
    ) as told:
        exec(written, scope)
    names = [name for name in scope if not name.startswith("__")]
    assert all(scope[name] is getattr(import_module("delegraph.interfaces"), name) for name in names)
    assert {str(warning.message).split()[0].rpartition(".")[2] for warning in told} == set(names)
    assert all(warning.filename == "<string>" for warning in told)


@pytest.mark.parametrize("module", FORMER_MODULES)
def test_what_a_module_that_moved_never_had(module: str) -> None:
    with pytest.raises(ImportError, match="cannot import name 'KernelLibary'"):
        exec(f"from {module} import KernelLibary", {})


def test_a_module_that_never_was() -> None:
    with pytest.raises(ModuleNotFoundError, match=r"No module named 'delegraph\.runtime\.kernel'"):
        import_module("delegraph.runtime.kernel")


def test_the_registry_of_plug_ins_by_its_former_name() -> None:
    registry = PluginRegistry.discover()
    with pytest.warns(PluginDeprecationWarning, match=r"the parameter 'registry' of lower\(\) is deprecated: use 'pl"):
        program = delegraph.lower(torch.nn.ReLU(), (torch.ones(2),), registry=registry)  # type: ignore[call-arg]
    with pytest.warns(PluginDeprecationWarning, match=r"the parameter 'registry' of load\(\)") as told:
        module = delegraph.load(bytes(program), registry=registry)  # type: ignore[call-arg]
    assert told[0].filename == __file__
    assert module.forward(np.float32([-1, 2])).tolist() == [0, 2]


def test_blobs_as_scaffolds_packed_them() -> None:
    with pytest.warns(PluginDeprecationWarning, match=r"use delegraph\.interfaces\.B"):
        from delegraph.interfaces import blob_compatibility, pack_blob, unpack_blob  # type: ignore[attr-defined]
    head, arrays = unpack_blob(pack_blob({"a": [1]}, [np.float32([[1, 2]]), np.int8([])]))
    assert head == {"a": [1]}
    assert [array.tolist() for array in arrays] == [[[1, 2]], []]
    with pytest.raises(DelegateInvalidCompatibility):
        unpack_blob(b"strange")
    stamps = [BlobStamp("Npu", "acme", "1", version) for version in (1, 2, 3)]
    verdicts = [blob_compatibility(stamp, (2,), "acme").verdict for stamp in stamps]
    assert verdicts == [Verdict.RECOMPILE, Verdict.OK, Verdict.REFUSE]


def test_former_modules_are_asked_for_by_nobody_else() -> None:
    """Importing what is there never reaches the table, and no module of ours uses a former name."""
    code = "import delegraph.interfaces, delegraph.runtime, sys; print([m for m in sys.modules if m in table])"
    ran = subprocess.run(
        [sys.executable, "-c", f"table = {sorted(FORMER_MODULES)}; {code}"], capture_output=True, text=True, check=True
    )
    assert ran.stdout.strip() == "[]"
