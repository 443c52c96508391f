"""ACCELERATOR SYSTEM MEMORY_MODE FOLDER -> Vela's summaries of the .tflite files in it; prints its seconds as JSON.

A process of its own: Vela's compiler is a C++ library with threads and an allocator of its own, and inside a test run
it has hung. The first file is compiled twice, so that it is not the one that pays for what is loaded once.
"""

from __future__ import annotations

import contextlib
import io
import json
import sys
from pathlib import Path
from time import perf_counter

from ethosu.vela import vela


def main(accelerator: str, system: str, memory: str, folder: str) -> None:
    """Compile all files."""
    files = sorted(Path(folder).glob("*.tflite"))
    seconds = {}
    for file in [files[0], *files]:
        start = perf_counter()
        with contextlib.redirect_stdout(io.StringIO()):
            vela.main(
                [
                    str(file), "--accelerator-config", accelerator, "--config", "Arm/vela.ini",
                    "--system-config", system, "--memory-mode", memory, "--output-dir", folder,
                ]
            )  # fmt: skip
        seconds[file.stem] = perf_counter() - start
    print(json.dumps(seconds))


if __name__ == "__main__":
    main(*sys.argv[1:])
