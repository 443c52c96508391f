"""Every exception that Delegraph raises on purpose.

    DelegraphError
    ├── LoweringError                    ahead of time: the model cannot become a program
    │   ├── VerificationError            a node breaks a rule of its dialect
    │   ├── InvalidPartition             a partitioner's tags are not lowerable (cycle, re-tag, unknown tag)
    │   ├── MissingOutVariant            an operator has no out overload to run on planned memory
    │   ├── MissingKernel                no installed kernel library has the operator
    │   ├── UnboundedDimension           a dynamic dimension has no upper bound
    │   ├── UnsupportedOperator          a converter was handed a node that it declined
    │   └── PreprocessError              a backend's preprocess failed
    ├── ETRecordError                    an ETRecord was not asked for, is not complete or cannot be read
    ├── CodegenError                     a kernels.yaml does not fit torch's schemas or its kernels
    ├── PluginError                      who offers what
    │   ├── PluginNotFound               nobody offers the name
    │   ├── PluginConflict               two distributions offer one name
    │   ├── UnknownOption                an option that the plug-in does not have
    │   ├── PluginLoadError              importing, building or validating the plug-in failed
    │   ├── PluginUnavailable            what the plug-in needs is not installed
    │   └── PluginVersionError           it was built for another plug-in API
    └── RuntimeFault (a RuntimeError)    at load or execution; `code` is ExecuTorch's error code
        ├── Internal 0x01        InvalidState 0x02      Cancelled 0x03
        ├── NotSupported 0x10    InvalidArgument 0x12   InvalidType 0x13   OperatorMissing 0x14
        ├── KernelAlreadyRegistered 0x16
        ├── NotFound 0x20 ── BackendMissing             MemoryAllocationFailed 0x21   AccessFailed 0x22
        ├── InvalidProgram 0x23  InvalidExternalData 0x24                      LimitExceeded 0x25
        └── DelegateInvalidCompatibility 0x30           DelegateInvalidHandle 0x32

A message says what, where, why and what to do next. Codes: ExecuTorch `runtime/core/error.h`.
"""

from __future__ import annotations

from typing import ClassVar, TypeVar, cast

__all__ = [
    "AccessFailed",
    "BackendMissing",
    "Cancelled",
    "CodegenError",
    "DelegateInvalidCompatibility",
    "DelegateInvalidHandle",
    "DelegraphError",
    "ETRecordError",
    "Internal",
    "InvalidArgument",
    "InvalidExternalData",
    "InvalidPartition",
    "InvalidProgram",
    "InvalidState",
    "InvalidType",
    "KernelAlreadyRegistered",
    "LimitExceeded",
    "LoweringError",
    "MemoryAllocationFailed",
    "MissingKernel",
    "MissingOutVariant",
    "NotFound",
    "NotSupported",
    "OperatorMissing",
    "PluginConflict",
    "PluginError",
    "PluginLoadError",
    "PluginNotFound",
    "PluginUnavailable",
    "PluginVersionError",
    "PreprocessError",
    "RuntimeFault",
    "UnboundedDimension",
    "UnknownOption",
    "UnsupportedOperator",
    "VerificationError",
    "restated",
]


class DelegraphError(Exception):
    """The root: `except DelegraphError` catches everything below and nothing else.

    Messages may tell what stands in a stranger's file. What of it a terminal would act on (escape sequences, carriage
    returns, letters that turn the writing direction) is shown by its code.
    """

    def __str__(self) -> str:
        text = super().__str__()
        return text if text.isprintable() else "".join(map(_shown, text))


def _shown(character: str) -> str:
    if character.isprintable() or character in "\n\t":
        return character
    return character.encode("unicode_escape").decode()


# ---- ahead of time ---------------------------------------------------------------------------------


class LoweringError(DelegraphError):
    """The model cannot be lowered. `node` is the graph node's name, `location` its line of user code."""

    def __init__(self, message: str, *, node: str | None = None, location: str | None = None) -> None:
        where = "".join(
            f"\n  {label}: {value}" for label, value in (("node", node), ("at", location)) if value is not None
        )
        super().__init__(message + where)
        self.node = node
        self.location = location


class VerificationError(LoweringError):
    """A node breaks a rule of the dialect that the program claims to be in."""


class InvalidPartition(LoweringError):
    """The tags that a partitioner set cannot be cut out: a cycle, a re-tagged node, a tag without a spec."""


class MissingOutVariant(LoweringError, RuntimeError):
    """An operator has no `out` overload to run on planned memory; a `RuntimeError` as in ExecuTorch."""


class MissingKernel(LoweringError):
    """No installed kernel library has a kernel for an operator that was not delegated."""


class UnboundedDimension(LoweringError):
    """A dynamic dimension has no upper bound, so its memory cannot be planned."""


class UnsupportedOperator(LoweringError):
    """A backend's converter was handed a node that it does not support."""


class PreprocessError(LoweringError):
    """A backend's `preprocess` raised; the cause is chained."""


class ETRecordError(DelegraphError, RuntimeError):
    """An ETRecord that was not asked for, is not complete, or cannot be read; a RuntimeError, as in ExecuTorch."""


class CodegenError(DelegraphError):
    """A kernels.yaml cannot be registered as it stands: each fault with its line."""


# ---- plug-ins --------------------------------------------------------------------------------------


class PluginError(DelegraphError):
    """Something about an installed (or missing) plug-in."""


class PluginNotFound(PluginError):
    """No installed distribution offers the name that was asked for."""


class PluginConflict(PluginError):
    """Two distributions offer one name and nothing says which is meant."""


class UnknownOption(PluginError):
    """An option was given to a plug-in, or to a backend, that does not have it."""


class PluginLoadError(PluginError):
    """Importing, building or validating a plug-in failed: says group, name, distribution, version, cause, remedy."""


class PluginUnavailable(PluginLoadError):
    """What the plug-in needs is not installed here: says what to install. It is sound otherwise."""


class PluginVersionError(PluginLoadError):
    """The plug-in needs a plug-in API that this host does not offer."""


# ---- runtime ---------------------------------------------------------------------------------------


class RuntimeFault(DelegraphError, RuntimeError):
    """A failure at load or execution, a `RuntimeError` as ExecuTorch raises there. `code` is its code of that name."""

    code: ClassVar[int] = 0x01


class Internal(RuntimeFault):
    """A kernel, a backend or Delegraph itself broke its contract."""

    code = 0x01


class InvalidState(RuntimeFault):
    """The call is not allowed now: an input was never set, or a Method is already executing."""

    code = 0x02


class Cancelled(RuntimeFault):
    """The execution was ended by `Method.cancel()`. The Method can be used again. (ExecuTorch's code: EndOfMethod.)"""

    code = 0x03


class NotSupported(RuntimeFault):
    """The program asks for something that no runtime of this version does."""

    code = 0x10


class InvalidArgument(RuntimeFault):
    """An argument has the wrong count, shape, structure or value."""

    code = 0x12


class InvalidType(RuntimeFault):
    """An argument has the wrong type or dtype."""

    code = 0x13


class OperatorMissing(RuntimeFault):
    """No registered kernel fits an operator of the program."""

    code = 0x14


class KernelAlreadyRegistered(RuntimeFault):
    """One kernel library registers the same operator and kernel key twice."""

    code = 0x16


class NotFound(RuntimeFault):
    """No method, backend, segment or named datum of that name."""

    code = 0x20


class BackendMissing(NotFound):
    """The program needs a backend that is not installed or not available here."""


class MemoryAllocationFailed(RuntimeFault):
    """A planned buffer could not be had, or is too small."""

    code = 0x21


class AccessFailed(RuntimeFault):
    """A file could not be opened or read."""

    code = 0x22


class InvalidProgram(RuntimeFault):
    """The bytes are not a valid `.pte`; the message names the offset or the field path."""

    code = 0x23


class InvalidExternalData(RuntimeFault):
    """A `.ptd` is damaged, missing, or does not fit the program."""

    code = 0x24


class LimitExceeded(RuntimeFault):
    """The program wants more time or memory than `Limits` allow. (ExecuTorch's code: OutOfResources.)"""

    code = 0x25


class DelegateInvalidCompatibility(RuntimeFault):
    """A backend refuses a blob: wrong version, wrong device, damaged, or to be recompiled."""

    code = 0x30


class DelegateInvalidHandle(RuntimeFault):
    """A delegate handle was used after it was destroyed."""

    code = 0x32


# ---- context ---------------------------------------------------------------------------------------

_E = TypeVar("_E", bound=DelegraphError)


def restated(error: _E, message: str) -> _E:
    """An error of `error`'s class and with its attributes that says `message`, which knows more of where it happened.

    A plug-in may derive classes from ours that are made of other things than a message, or that write their own; of
    the latter the nearest of ours is taken, so that the message is what is read.
    """
    ours = next(kind for kind in type(error).__mro__ if kind.__module__ == __name__)
    kind = type(error) if type(error).__str__ is DelegraphError.__str__ else cast(type[_E], ours)
    made = kind.__new__(kind, message)
    made.__dict__.update(error.__dict__)
    return made
