"""Every exception that Delegraph raises on purpose.

    DelegraphError
    ├── LoweringError                    ahead of time: the model cannot become a program
    │   ├── VerificationError            a node breaks a rule of its dialect
    │   ├── InvalidPartition             a partitioner's tags are not lowerable (cycle, re-tag, unknown tag)
    │   ├── MissingOutVariant            an operator has no out overload to run on planned memory
    │   ├── MissingKernel                no installed kernel library has the operator
    │   ├── UnboundedDimension           a dynamic dimension has no upper bound
    │   ├── UnsupportedOperator          a backend refuses a node that its partitioner took
    │   └── PreprocessError              a backend refuses a partition, or its preprocess failed
    ├── NotInstalled                     torch, or another package that a call needs, is not installed
    ├── BundleError                      a wheel that a program needs is not to be had for a platform
    ├── DeviceError                      a device behind ssh cannot be reached, or lacks what a program needs
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
        ├── Internal 0x01        InvalidState 0x02 ── Busy      Cancelled 0x03
        ├── NotSupported 0x10    InvalidArgument 0x12   InvalidType 0x13   OperatorMissing 0x14
        ├── KernelAlreadyRegistered 0x16
        ├── NotFound 0x20 ── BackendMissing             MemoryAllocationFailed 0x21   AccessFailed 0x22
        ├── InvalidProgram 0x23  UntrustedFile 0x23    InvalidExternalData 0x24   LimitExceeded 0x25
        └── DelegateInvalidCompatibility 0x30           DelegateInvalidHandle 0x32

    FallbackWarning (a UserWarning)      a method runs, but not on the backend that it was lowered for

A message says what, where, why and what to do next; each class says what mostly helps.
Codes: ExecuTorch `runtime/core/error.h`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import ClassVar, Final, TypeVar, cast

__all__ = [
    "FOREIGN",
    "AccessFailed",
    "BackendMissing",
    "BundleError",
    "Busy",
    "Cancelled",
    "CodegenError",
    "DelegateInvalidCompatibility",
    "DelegateInvalidHandle",
    "DelegraphError",
    "DeviceError",
    "ETRecordError",
    "FallbackWarning",
    "Internal",
    "InvalidArgument",
    "InvalidExternalData",
    "InvalidPartition",
    "InvalidProgram",
    "InvalidState",
    "InvalidType",
    "KernelAlreadyRegistered",
    "LimitExceeded",
    "LimitWarning",
    "LoweringError",
    "MemoryAllocationFailed",
    "MissingKernel",
    "MissingOutVariant",
    "NotFound",
    "NotInstalled",
    "NotSupported",
    "OperatorMissing",
    "PluginConflict",
    "PluginError",
    "PluginLoadError",
    "PluginNotFound",
    "PluginUnavailable",
    "PluginVersionError",
    "PluginWarning",
    "PreprocessError",
    "RuntimeFault",
    "UnboundedDimension",
    "UnknownOption",
    "UnsupportedOperator",
    "UntrustedFile",
    "VerificationError",
    "cause_of",
    "foreign_code",
    "restated",
]


class DelegraphError(Exception):
    """The root: `except DelegraphError` catches everything below and nothing else.

    Messages may tell what stands in a stranger's file. What of it a terminal would act on (escape sequences, carriage
    returns, letters that turn the writing direction) is shown by its code.
    """

    def __str__(self) -> str:
        return shown(super().__str__())

    def _render_traceback_(self) -> list[str]:
        """The lines that a notebook shows."""
        from delegraph.tracebacks import notebook_traceback  # which seldom comes

        return notebook_traceback(self)


def shown(text: str) -> str:
    """`text`, what a terminal would act on by its code."""
    return text if text.isprintable() else "".join(map(_shown, text))


def _shown(character: str) -> str:
    if character.isprintable() or character in "\n\t":
        return character
    return character.encode("unicode_escape").decode()


def printable(text: str) -> str:
    """`text`, quoted where it would reach the terminal as a control sequence: names in a file are a stranger's."""
    return text if text.isprintable() else repr(text)


# ---- ahead of time ---------------------------------------------------------------------------------


class LoweringError(DelegraphError):
    """The model cannot be lowered. `node` is the graph node's name, `location` its line of user code.

    What to do: go to `location`, the line of your model, and to the node of that name in the program that
    `DELEGRAPH_DUMP` writes.
    """

    def __init__(self, message: str, *, node: str | None = None, location: str | None = None) -> None:
        where = "".join(
            f"\n  {label}: {value}" for label, value in (("node", node), ("at", location)) if value is not None
        )
        super().__init__(message + where)
        self.node = node
        self.location = location


class VerificationError(LoweringError):
    """A node breaks a rule of the dialect that the program claims to be in.

    What to do: if a pass of yours ran, it made the node; if none did, the message and the program are worth an
    issue.
    """


class InvalidPartition(LoweringError):
    """The tags that a partitioner set cannot be cut out: a cycle, a re-tagged node, a tag without a spec.

    What to do: a partitioner's author gives the nodes of one cycle different tags; a user leaves that backend out
    of `backends`.
    """


class MissingOutVariant(LoweringError, RuntimeError):
    """An operator has no `out` overload to run on planned memory; a `RuntimeError` as in ExecuTorch.

    What to do: import the library that registers it, have a backend take the operator, or register an `out`
    overload of your own.
    """


class MissingKernel(LoweringError):
    """No installed kernel library has a kernel for an operator that was not delegated.

    What to do: install the library that the message names, have a backend take the operator, or lower with
    `ExecutorchBackendConfig(check_kernels=False)` for a device that has the kernel.
    """


class UnboundedDimension(LoweringError):
    """A dynamic dimension has no upper bound, so its memory cannot be planned.

    What to do: give it one when exporting: `dynamic_shapes=({0: Dim("batch", max=16)},)`.
    """


class UnsupportedOperator(LoweringError):
    """A backend's converter was handed a node that it does not support.

    Raised by `preprocess` it is a refusal: lowering goes on without the node that it names, or without the partition.

    What to do: a backend's author lets `support` decline what no converter takes; a user lowers without that
    backend.
    """


class PreprocessError(LoweringError):
    """A backend's `preprocess` raised; the cause is chained.

    Raised by `preprocess` itself it is a refusal, as `UnsupportedOperator` is.

    What to do: read the cause (`__cause__`), which is the backend's own; lower without that backend in the
    meantime.
    """


class NotInstalled(DelegraphError, ModuleNotFoundError):
    """A package that a call needs is not installed: torch, for all that is done ahead of time. `name` is the package's.

    What to do: install the package that the message names; to run a file that is lowered already, nothing:
    `delegraph.load` needs no torch.
    """


class BundleError(DelegraphError):
    """A wheel that a program needs cannot be gathered for another machine.

    What to do: name a folder that has the wheel (`--find-links`), or a platform and a Python for which there is one.
    """


class DeviceError(DelegraphError):
    """A device behind ssh cannot be reached, lacks what a program needs, or a file did not arrive.

    What to do: try `ssh HOST true`; install there what the message names. A file that was there is as it was.
    """


class ETRecordError(DelegraphError, RuntimeError):
    """An ETRecord that was not asked for, is not complete, or cannot be read; a RuntimeError, as in ExecuTorch.

    What to do: lower with `generate_etrecord=True`, and hand it the file that belongs to this program.
    """


class CodegenError(DelegraphError):
    """A kernels.yaml cannot be registered as it stands: each fault with its line.

    What to do: correct the lines that it lists, in the file or in the kernels, and generate again.
    """


# ---- plug-ins --------------------------------------------------------------------------------------


class PluginError(DelegraphError):
    """Something about an installed (or missing) plug-in.

    What to do: `delegraph plugins doctor` finds out what is wrong with what is installed.
    """


class PluginNotFound(PluginError):
    """No installed distribution offers the name that was asked for.

    What to do: install the distribution that offers it, or take one of the names in the message; `delegraph plugins
    list`.
    """


class PluginConflict(PluginError):
    """Two distributions offer one name and nothing says which is meant.

    What to do: say which one: `prefer={"backends:Npu": "acme-npu"}`, or `DELEGRAPH_PREFER=backends:Npu=acme-npu`.
    """


class UnknownOption(PluginError):
    """An option was given to a plug-in, or to a backend, that does not have it.

    What to do: take one of the options that the message lists; a number or a flag is written without quotation
    marks.
    """


class PluginLoadError(PluginError):
    """Importing, building or validating a plug-in failed: says group, name, distribution, version, cause, remedy.

    What to do: `delegraph plugins check NAME` loads it in a process of its own and shows the cause;
    `DELEGRAPH_DISABLE_PLUGINS` leaves it out.
    """


class PluginUnavailable(PluginLoadError):
    """The plug-in needs something that is not installed here: says what to install. It is sound otherwise.

    What to do: install what the message names, mostly an extra: `pip install "NAME[EXTRA]"`.
    """


class PluginVersionError(PluginLoadError):
    """The plug-in needs a plug-in API that this host does not offer.

    What to do: install the version of the plug-in, or of Delegraph, that the message asks for.
    """


class PluginWarning(UserWarning):
    """Something goes on without a plug-in: a tool or a kernel library that could not be loaded, a tool that raised, a
    backend that refuses a partition or cannot run here."""


# ---- runtime ---------------------------------------------------------------------------------------


class RuntimeFault(DelegraphError, RuntimeError):
    """A failure at load or execution, a `RuntimeError` as ExecuTorch raises there. `code` is its code of that name.

    What to do: what the class says that was raised, one of those below.
    """

    code: ClassVar[int] = 0x01


class Internal(RuntimeFault):
    """A kernel, a backend or Delegraph itself broke its contract.

    What to do: the message says whose contract it was: tell the authors of that kernel or backend, with the
    program.
    """

    code = 0x01


class InvalidState(RuntimeFault):
    """The call is not allowed now: an input was never set, or a Method is already executing.

    What to do: set every input first; call the `Module`, which any number of threads may, and not its `Method`; where
    the model has state, give each thread a `Module.session()` of its own.
    """

    code = 0x02


class Busy(InvalidState):
    """As many calls wait for a worker as may, or this one has waited for as long as it may: see `Concurrency`.

    What to do: try again later; a server answers 503.
    """


class Cancelled(RuntimeFault):
    """The execution was ended by `Method.cancel()`. The Method can be used again. (ExecuTorch's code: EndOfMethod.)

    What to do: nothing, it was asked for; run again when you like.
    """

    code = 0x03


class NotSupported(RuntimeFault):
    """The program asks for something that no runtime of this version does.

    What to do: lower the model anew, with this version, or install the version that wrote the file.
    """

    code = 0x10


class InvalidArgument(RuntimeFault):
    """An argument has the wrong count, shape, structure or value.

    What to do: compare what you gave with `delegraph inspect m.pte`, which lists inputs with their shapes and
    limits.
    """

    code = 0x12


class InvalidType(RuntimeFault):
    """An argument has the wrong type or dtype.

    What to do: convert the argument to the dtype in the message: `x.astype(numpy.float32)`.
    """

    code = 0x13


class OperatorMissing(RuntimeFault):
    """No registered kernel fits an operator of the program.

    What to do: install the kernel library that the message names, or lower with a backend that takes the operator.
    """

    code = 0x14


class KernelAlreadyRegistered(RuntimeFault):
    """One kernel library registers the same operator and kernel key twice.

    What to do: the library's author removes one of the two; a user names the libraries without it: `kernels=[…]`.
    """

    code = 0x16


class NotFound(RuntimeFault):
    """No method, backend, segment or named datum of that name.

    What to do: take one of the names in the message; `delegraph inspect m.pte` lists them all.
    """

    code = 0x20


class BackendMissing(NotFound):
    """The program needs a backend that is not installed or not available here.

    What to do: install the backend's package here; `delegraph plugins doctor m.pte` says which, and why it is not
    available.
    """


class MemoryAllocationFailed(RuntimeFault):
    """A planned buffer could not be had, or is too small.

    What to do: free memory, or plan with less: see `delegraph inspect m.pte --memory`; a buffer of your own has to
    be as large as the plan says.
    """

    code = 0x21


class AccessFailed(RuntimeFault):
    """A file could not be opened or read.

    What to do: check the path, its permissions, and for a URL the network and the data loader.
    """

    code = 0x22


class InvalidProgram(RuntimeFault):
    """The bytes are not a valid `.pte`; the message names the offset or the field path.

    What to do: get the file again: it is damaged, cut off or not a `.pte`. Nothing in it was run.
    """

    code = 0x23


class UntrustedFile(RuntimeFault):
    """A file is not signed with a key that the caller trusts, or was changed since. (Code: that of InvalidProgram.)

    What to do: get the file from whom you trust; `delegraph inspect` says who signed it. Nothing in it was run.
    """

    code = 0x23


class InvalidExternalData(RuntimeFault):
    """A `.ptd` is damaged, missing, or does not fit the program.

    What to do: pass the `.ptd` that was written beside this program: `data_path=`.
    """

    code = 0x24


class LimitExceeded(RuntimeFault):
    """The program wants more time or memory than `Limits` allow. (ExecuTorch's code: OutOfResources.)

    What to do: raise the limit that the message names, if you trust the file: `limits=Limits(…)`.
    """

    code = 0x25


class LimitWarning(UserWarning):
    """Said when a program is lowered which asks for more memory than a load allows by itself (`LimitExceeded`)."""


class DelegateInvalidCompatibility(RuntimeFault):
    """A backend refuses a blob: wrong version, wrong device, damaged, or to be recompiled.

    What to do: lower again with the backend that is installed here, or install the version that made the blob.
    """

    code = 0x30


class DelegateInvalidHandle(RuntimeFault):
    """A delegate handle was used after it was destroyed.

    What to do: load the method again: it was closed.
    """

    code = 0x32


class FallbackWarning(UserWarning):
    """A device cannot run some delegates, and runs the graphs instead that `lower(…, fallback=…)` kept beside them; or
    one of these could not be kept."""


def torch_missing(what: str, error: ModuleNotFoundError) -> NotInstalled | None:
    """The error for `what`, a call or command that needs torch, where `error` says that there is none; None for any
    other module."""
    if (error.name or "").partition(".")[0] != "torch":
        return None
    return NotInstalled(
        f"{what} works ahead of time, and needs torch, which is not installed here ({error}): pip install torch; to run"
        " a .pte that is there already, delegraph.load and `delegraph run` need none",
        name="torch",
    )


# ---- context ---------------------------------------------------------------------------------------

_E = TypeVar("_E", bound=DelegraphError)


def not_loaded_text(broken: Iterable[PluginError]) -> str:
    """Lines for an error about something that no plug-in has: the plug-ins that nobody could ask."""
    return "".join(f"\n  could not be loaded: {error}" for error in broken)


FOREIGN: Final = (Exception, SystemExit)
"""Whatever the code of a plug-in may raise ahead of time. On devices `SystemExit` is let through, as Ctrl-C is: there
it is the handler's of a signal that ends a server, wherever it is just then."""


def cause_of(error: BaseException) -> str:
    """`ValueError: its text`, for the message of an error of ours; a text that cannot be made is said to be such."""
    try:
        return f"{type(error).__name__}: {error}"
    except FOREIGN as fault:
        return f"{type(error).__name__}, which cannot be printed ({type(fault).__name__} in its __str__)"


@contextmanager
def foreign_code(told: str) -> Iterator[None]:
    """Code of a plug-in, ahead of time: an error of ours passes, and any other becomes a `LoweringError` that says
    `told`, then the cause."""
    try:
        yield
    except DelegraphError:
        raise
    except FOREIGN as error:
        raise LoweringError(f"{told} {cause_of(error)}") from error


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
