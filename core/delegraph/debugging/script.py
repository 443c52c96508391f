"""The smallest program that shows a fault -> a folder with a script that shows it to whoever has the backend.

repro-cpu-mul/
    repro.py        ends with 1 while the fault is there, with 0 when it is mended
    program.pt2     the program, for `torch.export.load`, with its weights and inputs
    inputs.npz      the inputs by name, for others than torch
    expected.npz    torch's results by name
    README.md       what was seen, where, with which versions
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from string import Template
from typing import Final

import numpy as np
import torch
from torch.utils import _pytree as pytree

from delegraph.aot.authoring.dtypes import as_array
from delegraph.debugging.judge import Judge
from delegraph.debugging.result import Fault
from delegraph.debugging.source import sources
from delegraph.debugging.subgraph import Case
from delegraph.debugging.verdict import Kind, Verdict
from delegraph.devtools.worker import with_our_path
from delegraph.plugins.installed import installed
from delegraph.plugins.plugin_spec import PluginSpec
from delegraph.program.dtypes import storable

__all__ = ["write_repro"]

_START: Final = 60.0
"""Seconds for torch to be imported, beyond those of the trial."""


def write_repro(folder: Path, case: Case, fault: Fault, backends: Sequence[PluginSpec], judge: Judge) -> Fault:
    """Write the files into a new folder below `folder`, all or none; the fault with its place, and with a note if the
    script does not show it. The script is run before. Raises `OSError`."""
    folder.mkdir(parents=True, exist_ok=True)
    building = Path(tempfile.mkdtemp(prefix=".delegraph-", dir=folder))
    try:
        _write_program(building, case)
        allowed = judge.allowed(case)
        settings = {
            "allowed": repr([allowed[position] for position in _write_results(building, case)]),
            "title": f"{fault.name}: {', '.join(call.operator for call in fault.calls) or fault.method}",
            "said": fault.verdict.said.replace("\\", "/").replace('"""', "'''").strip(),
            "backends": repr([(spec.name, dict(spec.options)) if spec.options else spec.name for spec in backends]),
            "options": repr({name: dict(own) for name, own in (judge.backend_options or {}).items()} or None),
            "timeout": f"{judge.timeout + _START:g}",
        }
        shown = _write_script(building / "repro.py", case, settings, fault.verdict, judge.timeout)
        note = fault.note if shown else f"{fault.note} {_NOT_SHOWN}".strip()
        (building / "README.md").write_text(_readme(fault, note), "utf-8")
        building.chmod(0o755)
        place = _renamed(building, folder / _folder_name(fault))
    except BaseException:
        shutil.rmtree(building, ignore_errors=True)
        raise
    return fault.written(str(place), note)


_NOT_SHOWN: Final = "The script does not show it: it takes more than this program in a process of its own."


def _write_program(building: Path, case: Case) -> None:
    torch.export.save(case.program, building / "program.pt2")
    leaves = pytree.tree_leaves(case.program.example_inputs)
    arrays = {
        str(name): storable(as_array(leaf.detach()))
        for name, leaf in zip(case.program.graph_signature.user_inputs, leaves, strict=True)
        if isinstance(leaf, torch.Tensor)
    }
    np.savez(building / "inputs.npz", allow_pickle=False, **arrays)


def _write_results(building: Path, case: Case) -> list[int]:
    """Write torch's results; the positions of those that are tensors."""
    names = case.outputs or [f"output_{position}" for position in range(len(case.expected))]
    tensors = {position: value for position, value in enumerate(case.expected) if value is not None}
    arrays = {names[position]: storable(as_array(value.detach())) for position, value in tensors.items()}
    np.savez(building / "expected.npz", allow_pickle=False, **arrays)
    return list(tensors)


def _write_script(script: Path, case: Case, settings: Mapping[str, str], verdict: Verdict, timeout: float) -> bool:
    """Write the most readable script that shows the fault; whether one does."""
    for source in sources(case.program):
        script.write_text(_SCRIPT.substitute(settings, model=source.model, lowered=source.lowered), "utf-8")
        if _sign(verdict) in _errors(script, timeout):
            return True
    return False


def _sign(verdict: Verdict) -> str:
    """Words of a script that shows this; any other error ends it with 1, too."""
    return _SIGNS.get(verdict.kind) or verdict.said.partition(": ")[2].partition("\n")[0]


_SIGNS: Final = {
    Kind.WRONG: "AssertionError: ",
    Kind.REFUSED: "refused: ",
    Kind.CRASHED: "the process ended with code ",
    Kind.HANGS: "no answer within ",
}


def _errors(script: Path, timeout: float) -> str:
    """The words of the script, if it ends with 1."""
    limit = timeout + 2 * _START
    try:
        done = subprocess.run(
            [sys.executable, script], env=with_our_path(), capture_output=True, timeout=limit, check=False
        )
    except subprocess.TimeoutExpired:
        return ""
    return done.stderr.decode("utf-8", "replace") if done.returncode == 1 else ""


def _folder_name(fault: Fault) -> str:
    operators = dict.fromkeys(call.operator.partition("::")[2].partition(".")[0] for call in fault.calls[:3])
    words = ["repro", *re.findall(r"\w+", fault.backends)[:1], *(operators or [fault.method])]
    return "-".join(re.sub(r"\W+", "_", word) for word in words)


def _renamed(building: Path, target: Path) -> Path:
    """`building` by the name of `target`; where something is called that, with the next number behind it."""
    place, number = target, 1
    while place.exists():
        number += 1
        place = target.with_name(f"{target.name}-{number}")
    return building.rename(place)


# ---- words ---------------------------------------------------------------------------------------------------------


def _readme(fault: Fault, note: str) -> str:
    calls = "\n".join(f"- `{call.operator}` ({call.name}): {call.location or 'no line known'}" for call in fault.calls)
    plugins = ", ".join(f"{plugin.distribution} {plugin.version}" for plugin in installed())
    return _README.substitute(
        name=fault.name,
        method=fault.method,
        total=fault.total,
        calls=calls or "- all of them together",
        said=fault.verdict.said.strip(),
        note=f"\n{note}\n" if note else "",
        versions=f"delegraph {version('delegraph')}, torch {torch.__version__}, NumPy {np.__version__}, Python"
        f" {platform.python_version()}, {platform.platform()}, {os.cpu_count()} processors",
        plugins=plugins,
    )


_README: Final = Template("""\
# $name

Of $total calls of method `$method` these show it by themselves:

$calls

```
$said
```
$note
`python repro.py` ends with 1 while it is so, and with 0 when it is mended; `python repro.py --here` does the same in
one process, for a debugger. `program.pt2` is the program with its weights and inputs, `inputs.npz` has the inputs for
others than torch, and `expected.npz` torch's results.

Seen with $versions. Plug-ins: $plugins.
""")

_SCRIPT: Final = Template('''\
"""$title

$said

`python repro.py` ends with 1 while it is so, and with 0 when it is mended; `--here` starts no process of its own for
it, as a debugger needs it.
"""

import subprocess
import sys
from pathlib import Path

if __name__ == "__main__" and "--here" not in sys.argv:
    try:
        code = subprocess.run([sys.executable, __file__, "--here"], timeout=$timeout).returncode
    except subprocess.TimeoutExpired:
        sys.exit("no answer within $timeout s")
    if code not in (0, 1):
        print(f"the process ended with code {code}", file=sys.stderr)
    sys.exit(code != 0)

import numpy as np
import torch
from torch.ao.quantization.fx import _decomposed  # noqa: F401  # the operators of quantized programs

import delegraph

HERE = Path(__file__).resolve().parent
PROGRAM = torch.export.load(HERE / "program.pt2")
ARGS, KWARGS = PROGRAM.example_inputs
ALLOWED = $allowed  # by result: the largest difference that passes

$model

def run():
    lowered = delegraph.lower($lowered, backends=$backends)
    if lowered.report.refusals:
        sys.exit("refused: " + "; ".join(lowered.report.refusals))
    module = delegraph.load(bytes(lowered), backend_options=$options)
    results = torch.utils._pytree.tree_leaves(module(*ARGS, **KWARGS))
    results = [result for result in results if isinstance(result, torch.Tensor)]
    with np.load(HERE / "expected.npz") as expected:
        for name, result, allowed in zip(expected.files, results, ALLOWED, strict=True):
            value = torch.from_numpy(expected[name]).to(result.dtype)
            torch.testing.assert_close(result, value, rtol=0, atol=allowed, equal_nan=True)
    print("right")


if __name__ == "__main__":
    run()
''')
