"""A call -> its value, from a process of its own: the size of a thread pool is set once in a process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
EXECUTORCH = ROOT / ".venv-executorch" / "bin" / "python"
PEERS = ROOT / "build" / "peers" / "bin" / "python"
POOLS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "DELEGRAPH_CPU_THREADS")


def in_process(module: str, call: str, threads: int, python: str | Path = sys.executable) -> Any:
    """What `call`, an expression in the names of `module`, gives there as JSON; all pools have `threads` threads."""
    code = f"import json; from {module} import *; value = json.dumps({call}); print(); print(value)"
    environment = os.environ | dict.fromkeys(POOLS, str(threads))
    ran = subprocess.run(
        [str(python), "-c", code], capture_output=True, text=True, check=False, cwd=ROOT, env=environment
    )
    if ran.returncode != 0:
        raise SystemExit(f"measuring {call} failed:\n{ran.stderr[-3000:]}")
    return json.loads(ran.stdout.strip().splitlines()[-1])
