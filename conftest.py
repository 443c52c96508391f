"""The shell's settings for its user do not reach the tests: colours, plug-ins to prefer or leave out, threads; and
where ExecuTorch is, for those that compare with it."""

from __future__ import annotations

import gc
import os
import signal
from pathlib import Path

import pytest

OF_RICH = ("FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE")
OF_DELEGRAPH = ("DELEGRAPH_CPU_THREADS", "DELEGRAPH_DISABLE_PLUGINS", "DELEGRAPH_PLUGINS", "DELEGRAPH_PREFER")

for name in (*OF_RICH, *OF_DELEGRAPH):
    os.environ.pop(name, None)

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # a shell that starts tests behind `&` has them ignore Ctrl-C
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_finish() -> None:
    """Garbage is not looked for in torch and in thousands of collected tests: that took a tenth of the time."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def executorch_python() -> str:
    """The interpreter beside ExecuTorch: `DELEGRAPH_EXECUTORCH_PYTHON`, or the one of `make setup-executorch`."""
    made = Path(__file__).parent / ".venv-executorch" / "bin" / "python"
    python = os.environ.get("DELEGRAPH_EXECUTORCH_PYTHON", str(made))
    if not Path(python).exists():
        pytest.skip("ExecuTorch is not here: run `make setup-executorch`")
    return python
