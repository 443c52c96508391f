"""Model, batch size, contenders -> each one's files in a folder, and what they cost: seconds and bytes.

What was made stays there for later runs, that of Delegraph for those of the same revision; so does what failed, but
for what was not ready in less time than it is given now.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

from benchmarks.peers.contenders import OURS, Contender, command, revision

__all__ = ["last_lines", "prepared"]

RECORD: Final = "made.json"
Figures = dict[str, Any]


def prepared(
    name: str, batch: int, contenders: Sequence[Contender], folder: Path, patience: float, jobs: int
) -> dict[Contender, Figures]:
    """Contender -> seconds and bytes, or {"error": the last lines of what it wrote}; their files are in `folder`.

    `jobs` peers make theirs at a time, each for `patience` seconds at most.
    """
    if not (folder / "expected.npy").exists():
        folder.mkdir(parents=True, exist_ok=True)
        _write_example(name, batch, folder)
    record = folder / RECORD
    known: dict[str, Figures] = json.loads(record.read_text()) if record.exists() else {}
    missing = [one for one in contenders if not _is_made(one, known, patience)]
    groups = [[one for one in missing if one.peer == peer] for peer in dict.fromkeys(one.peer for one in missing)]
    with ThreadPoolExecutor(jobs) as pool:
        for made in pool.map(lambda group: _make(group, name, batch, folder, patience), groups):
            known |= made
            record.write_text(json.dumps(known, indent=1))
    return {one: dict(known[str(one)]) for one in contenders}


def last_lines(text: str) -> str:
    """What a process said last."""
    lines = [line.strip() for line in text.strip().splitlines() if line.strip()]
    return " | ".join(lines[-2:])[-400:] or "it ended without a word"


def _is_made(one: Contender, known: dict[str, Figures], patience: float) -> bool:
    found = known.get(str(one))
    if found is None or found.get("patience", patience) < patience:
        return False
    return not one.peer.startswith(OURS) or (found["revision"] == revision() and "+" not in revision())


def _make(group: Sequence[Contender], name: str, batch: int, folder: Path, patience: float) -> dict[str, Figures]:
    """One peer's files, in all of its precisions."""
    for one in group:
        shutil.rmtree(folder / str(one), ignore_errors=True)
    peer, precisions = group[0].peer, ";".join(one.precision for one in group)
    process = subprocess.Popen(
        command("prepare", peer, precisions, folder.absolute(), name, batch),
        cwd=folder,  # onnxruntime's quantizer leaves files where it runs
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        (out, error), late = process.communicate(timeout=patience), dict[str, float]()
    except subprocess.TimeoutExpired:
        process.kill()
        out, error, late = process.communicate()[0], f"not ready after {patience:g} s", {"patience": patience}
    told = [json.loads(line) for line in out.splitlines() if line.startswith("{")]
    found = {answer.pop("precision"): answer for answer in told}
    made = {str(one): found.get(one.precision, {"error": last_lines(error)} | late) for one in group}
    return {one: figures | {"revision": revision()} for one, figures in made.items()} if peer.startswith(OURS) else made


def _write_example(name: str, batch: int, folder: Path) -> None:
    import numpy as np
    import torch

    from benchmarks.models import outputs
    from benchmarks.peers.models import make

    model, args = make(name, batch)
    with torch.no_grad():
        expected = outputs(model(*args))[0].numpy()
    np.savez(folder / "inputs.npz", *(x.numpy() for x in args))
    np.save(folder / "expected.npy", expected)
