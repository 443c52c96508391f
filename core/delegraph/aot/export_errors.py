"""torch.export's exception -> what is wrong, the line of user code, and what to do next; and torch's log kept quiet."""

from __future__ import annotations

import inspect
import logging
import os
import re
import sys
import sysconfig
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stderr
from copy import deepcopy
from typing import Any, Final, TextIO, cast

import torch

__all__ = ["plain_reason", "quiet_torch", "user_line", "why_export_failed"]

_PACKAGES: Final = tuple(
    os.path.dirname(os.path.abspath(file)) + os.sep for file in (inspect.getfile(torch), os.path.dirname(__file__))
)
"""Where no line of a user stands: torch, and this package; nor in the standard library."""

_STDLIB: Final = sysconfig.get_path("stdlib") + os.sep
_INSTALLED: Final = re.compile(r"[/\\](?:site|dist)-packages[/\\]")

# torch's words -> ours, in which `{0}` … are the pattern's groups. The first that matches counts. torch 2.13.
_REASONS: Final = {
    r"\.numpy\(\) is not supported for tensor subclasses|Cannot interpret '.*' as a data type": (
        "the model calls NumPy, which torch.export cannot look into; write that part with torch's functions, or compute"
        " it outside and pass it as an argument"
    ),
    r"torch\.classes\.quantized\.(\w+)": (
        "the model was quantized by torch.ao.quantization (quantize_dynamic, convert), whose packed weights ({0})"
        " torch.export cannot take; give the float model, and quantize it here: delegraph.quantize(model,"
        ' args=(x,), recipe="int8_dynamic"), or recipe="int8" with calibration data'
    ),
    r"__torch__\.(?:torch\.classes\.)?([\w.]+) .*does not have a field with name '__obj_flatten__'": (
        "the model holds a TorchScript object ({0}), which torch.export cannot take; hold its numbers in parameters and"
        " buffers"
    ),
    r"You marked (.+?) as dynamic but your code specialized it to be a constant \((\d+)\)": (
        "dim {0} is dynamic, and the model fixes it at {1}: it compares that size with a number, reshapes to a number,"
        " or meets a tensor or weight of that size; write such code with x.shape or -1, or leave the dim out of"
        " dynamic_shapes"
    ),
    r"export 0/1 specialized due to hint of ([01]) for dimension (\S+?)\.?(?:\n|$)": (
        "the dim of {1} is dynamic, and its example has size {0}, which torch.export takes for a fixed one; give an"
        " example of size 2 or more"
    ),
    r"The values of (\w+) = .*? and (\w+) = .*? must always be equal": (
        "dims {0} and {1} have to be equal in this model; use one Dim for both in dynamic_shapes"
    ),
    r"Constraints violated(?s:.)*?Suggested fixes:\n(?P<fixes>(?:\s+.+\n?)+)": (
        "the model does not take every size that dynamic_shapes allows; torch.export would take these dims instead: {0}"
    ),
    r"Static shape constraint of (\d+) does not match input size of (\d+), for (\S+)": (
        "dynamic_shapes fixes a size of {2} at {0}, and the example has {1}; a dim that varies is Dim('n', max={0})"
    ),
    r"Unexpected input tensor shape (.+?) specified at `(.+?)`": (
        "{1} is {0}; it is a mapping by dim, {{0: Dim('batch', max=16)}}, or has a Dim or None for each dim"
    ),
    r"(\d+) not in range \[(\d+), (\w+)\]": (
        "an example has size {0} on a dynamic dim of {1} to {2}; give an example within it, or widen the Dim"
    ),
    r"Detected mismatch between the structure of `inputs` and `dynamic_shapes`: ([^\n]+)": (
        "dynamic_shapes does not fit the arguments: {0}; it has an entry for each argument, in their structure:"
        " {{'x': {{0: Dim('batch', max=16)}}}}"
    ),
    r"Expected dynamic shape spec (.+?) specified at `(.+?)` to have the same length .*expected (\d+)": (
        "{1} is {0}, and that argument has {2} dims; give a mapping by dim, {{0: Dim('batch', max=16)}}, or an entry"
        " for each dim"
    ),
    r"Found <class '(.+?)'> in output": (
        "forward returns a {0}, in which torch.export sees no tensors; return a tuple, list, dict or NamedTuple of"
        " tensors, or call torch.export.register_dataclass on a dataclass of yours before lowering"
    ),
    r"Unsupported input type <class '(.+?)'>": (
        "forward takes a {0}, in which torch.export sees no tensors; take tensors, tuples, lists or dicts, or call"
        " torch.export.register_dataclass on a dataclass of yours before lowering"
    ),
    r"There was no fake impl registered for <CustomOpDef\((.+?)\)>": (
        "custom operator {0} does not say which shape and dtype its result has; register a function that does, with"
        " torch.library.register_fake({0!r})"
    ),
    r"Expected all tensors to be on the same device, but found at least two devices, ([^!\n]+)": (
        "weights, buffers and example arguments lie on several devices ({0}); bring model and arguments onto one:"
        " model.cpu(), x.cpu()"
    ),
    r"Could not (?:guard on|extract specialized \w+ from) data-dependent expression (.+?) \(unhinted"
    r".*?\(Size-like symbols: (?!none)": (
        "the way through the model depends on a size that is known only when it runs ({0}), such as nonzero, unique or"
        " a mask gives; say which side holds with torch._check, as in torch._check(y.shape[0] > 0), or write the"
        " branch with torch.cond"
    ),
    r"Could not extract specialized \w+ from data-dependent expression|data-dependent expression z?u?f\d+ ": (
        "the model turns a value that it computes into a Python number, and needs that number while it is exported"
        " (int(), .item(), range() …); keep it a tensor, or give it as an argument"
    ),
    r"data-dependent expression": (
        "the way through the model depends on values that it computes; write such a branch with torch.cond, a loop with"
        " torch.while_loop, or both sides of it with torch.where"
    ),
}
_BEHIND: Final = re.compile(r"\n*(?:The error above occurred when calling|For more information about this error)")
_LOGS: Final = re.compile(r'\s*For more information, run with TORCH_LOGS="[^"]*"\.?')


def why_export_failed(
    model: torch.nn.Module, args: tuple[object, ...], kwargs: Mapping[str, object], cause: Exception
) -> str:
    """The reason, as `plain_reason`; but a copy of the model is run first, to see whether it fails by itself."""
    try:
        with torch.no_grad():
            deepcopy(model)(*args, **kwargs)
    except Exception as error:  # whatever the user's code raises
        return f"the model itself fails on the example arguments, without torch.export: {type(error).__name__}: {error}"
    return plain_reason(cause)


def plain_reason(cause: Exception) -> str:
    """The reason in our words where torch's are known, else torch's own without advice on how to debug torch."""
    text = _LOGS.sub("", _BEHIND.split(str(cause))[0]).strip()
    for pattern, reason in _REASONS.items():
        if match := re.search(pattern, text):
            return reason.format(*(_on_a_line(group) for group in match.groups("")))
    return text or type(cause).__name__


def _on_a_line(text: str) -> str:
    return "; ".join(line.strip() for line in text.splitlines() if line.strip())


def user_line(cause: BaseException) -> str | None:
    """`file:line, in function: code` of the innermost frame outside torch and this package, or None."""
    frame = next((frame for frame in reversed(traceback.extract_tb(cause.__traceback__)) if _is_user(frame)), None)
    if frame is None:
        return None
    return f"{frame.filename}:{frame.lineno}, in {frame.name}" + (f": {frame.line}" if frame.line else "")


def _is_user(frame: traceback.FrameSummary) -> bool:
    file = frame.filename
    if file.startswith(_STDLIB) and not _INSTALLED.search(file):
        return False
    return not file.startswith(_PACKAGES) and (not file.startswith("<") or file.startswith("<ipython-input"))


# ---- torch's log -----------------------------------------------------------------------------------


@contextmanager
def quiet_torch() -> Iterator[None]:
    """Keep torch's log and the graphs that it prints about a failure off standard error; what fails is an exception.

    What else is printed comes through. Somebody who sets `TORCH_LOGS` gets everything.
    """
    if os.environ.get("TORCH_LOGS"):
        yield
        return
    handlers = list(_torch_handlers())
    for handler in handlers:
        handler.addFilter(_no_record)
    try:
        with redirect_stderr(cast("TextIO", _WithoutGraphs(sys.stderr))):
            yield
    finally:
        for handler in handlers:
            handler.removeFilter(_no_record)


def _torch_handlers() -> Iterator[logging.Handler]:
    for name, logger in list(logging.root.manager.loggerDict.items()):
        if name.partition(".")[0] == "torch" and isinstance(logger, logging.Logger):
            yield from logger.handlers


def _no_record(_record: logging.LogRecord) -> bool:
    return False


class _WithoutGraphs:
    """A stream that leaves out the code of fx graphs, and the line's end that `print` puts behind it."""

    _GRAPH: Final = re.compile(r"\s*(?:class \w+\(torch\.nn\.Module\):\s+)?def forward\(self")

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._left_out = False

    def write(self, text: str) -> int:
        left_out, self._left_out = self._left_out, bool(self._GRAPH.match(text))
        if not self._left_out and not (left_out and text == "\n"):
            self._stream.write(text)
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
