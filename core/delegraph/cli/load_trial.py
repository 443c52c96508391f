"""A file -> why places of its delegates are passed over when it is loaded here: what only their `init` shows.

`delegraph plugins doctor m.pte` asks for methods with alternatives alone, and a process of its own answers.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

from delegraph.devtools.worker import WorkerDied, WorkerProcess, serve
from delegraph.errors import DelegraphError

__all__ = ["reasons_of_loads"]


def reasons_of_loads(file: str, limit: float) -> dict[tuple[str, int], list[str]]:
    """By method and delegate, the reasons against each place before the one that runs; of methods that cannot be loaded
    there are none. `limit` is seconds for all."""
    worker = WorkerProcess("delegraph.cli.load_trial")
    try:
        told = worker.ask({"file": file}, limit)["reasons"]
    except WorkerDied:
        return {}
    finally:
        worker.close()
    return {(method, delegate): reasons for method, delegate, reasons in told}


def _answer(request: Mapping[str, Any]) -> Mapping[str, Any]:
    from delegraph.runtime import Runtime

    warnings.simplefilter("ignore")
    told: list[tuple[str, int, tuple[str, ...]]] = []
    try:
        program = Runtime.get().load_program(request["file"])
        for name in program.alternatives:
            method = program.load_method(name)
            told += [(name, choice.delegate, choice.reasons) for choice in method.delegate_choices]
            method.close()
    except DelegraphError:  # the doctor's other findings say why, or nothing that they are about
        pass
    return {"reasons": told}


if __name__ == "__main__":
    serve(_answer)
