"""`delegraph run --host user@board m.pte`: the same command there, on files from here; what it writes comes back."""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from delegraph.cli import device_arguments

__all__ = ["run_there"]

_AS_THEY_ARE: Final = (
    *("method", "seed", "shape", "timeout", "cache", "kernels", "backend_options", "integrity", "repeat", "warmup"),
    *("check", "isolated", "trace", "rtol", "atol", "json"),
)
"""Options whose values are no files here."""


def run_there(args: argparse.Namespace) -> int:
    """Run the program on the device of `args`; the exit code there. Raises `DeviceError`."""
    from delegraph.remote import DeviceFolder

    with (
        DeviceFolder(device_arguments.device(args, args.host)) as folder,
        tempfile.TemporaryDirectory(prefix="delegraph-run-") as name,
    ):
        outputs, told = Path(name, "outputs.npz"), Path(name, "run.json")
        done = folder.run(["run", Path(args.program), *_words(args, Path(name), outputs, told)], [outputs, told])
        if outputs.exists():
            _keep(outputs, args.output, args.output_dir)
        if told.exists():
            shutil.copyfile(told, args.json_file)
    sys.stdout.write(done.stdout)
    sys.stderr.write(done.stderr)
    return 1 if done.code is None else done.code


def _keep(outputs: Path, path: str | None, folder: str | None) -> None:
    """Write the outputs where the options say."""
    if path:
        shutil.copyfile(outputs, path if path.endswith(".npz") else f"{path}.npz")  # as NumPy calls it
    if folder:
        with zipfile.ZipFile(outputs) as archive:
            archive.extractall(folder)


def _words(args: argparse.Namespace, beside: Path, outputs: Path, told: Path) -> Iterator[str | Path]:
    for name in _AS_THEY_ARE:
        value = getattr(args, name)
        option = f"--{name.replace('_', '-')}"
        if value is True:
            yield option
        for each in value if isinstance(value, list) else [value]:
            if each not in (None, False, True, ""):
                yield f"{option}={each}"
    if args.inputs is not None:
        yield from ("--inputs", _inputs(args.inputs, beside))
    for option, paths in (("--data", args.data), ("--trusted-key", args.trusted_key)):
        for path in paths or ():
            yield from (option, Path(path))
    if args.output or args.output_dir:
        yield from ("--output", outputs)
    if args.json_file:
        yield from ("--json-file", told)


def _inputs(text: str, beside: Path) -> str | Path:
    """Files in a list become a .npz, which is a zip file of them."""
    if text in ("random", "zeros"):
        return text
    files = text.split(",")
    if len(files) == 1 and files[0].endswith(".npz"):
        return Path(text)
    packed = beside / "inputs.npz"
    with zipfile.ZipFile(packed, "w") as archive:
        for number, file in enumerate(files):
            archive.write(file, f"arr_{number}.npy")
    return packed
