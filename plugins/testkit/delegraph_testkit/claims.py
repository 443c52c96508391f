"""conformance.toml -> `Claims`: an author's claims for a plug-in, which the kit proves.

    finite_only = "the compiler assumes that there is no NaN"    # a device that is held to finite numbers, and why
    computes_in = "float16"                                      # the operands it has, if they are fewer

    [features]                      # taken whole, besides operators
    dynamic_shapes = true

    [operators]                     # entry of torch's operator database = dtypes
    add = ["float32", "int32"]
    "nn.functional.linear" = ["float32"]

    [tolerances]                    # dtype = [relative, absolute], where the device is less exact than float32
    float32 = [1e-3, 1e-3]

    [[deviations]]                  # where results at the edges of a dtype differ from torch's, and why: see numerics/
    kind = "sign of zero"
    reason = "the device has one zero"
    operators = { neg = ["float32"] }

    [expected_failures]             # known failures, and why; an entry is refused as soon as its check passes
    "operators/add/int32" = "the driver saturates: https://…"

The file lies beside the plug-in's top `__init__.py`, where the command finds it without importing anything, or anywhere
else, for a test class names it. `conformance_acme.toml` there goes before it for the plug-in called `acme`.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from difflib import get_close_matches
from importlib.resources import files
from pathlib import Path
from typing import Any, Final, Self

from delegraph.errors import DelegraphError

__all__ = ["DTYPES", "EXCUSABLE", "FEATURES", "Claims", "ClaimsError", "ClaimsWarning", "Deviation", "database"]

DTYPES: Final = ("float32", "float16", "bfloat16", "float64", "int8", "uint8", "int16", "int32", "int64", "bool")
"""The dtypes in which operators are tried, as far as torch's kernels for the CPU take them."""

FEATURES: Final[Mapping[str, str]] = {
    "dynamic_shapes": "partitions whose sizes differ from run to run",
    "mutable_buffers": "buffers that the model changes, updated within the delegate",
    "control_flow": "conditions and loops, as a part of a partition or in bodies of their own",
    "shared_weights": "weights that two methods share are in the file once",
    "external_weights": "weights in a .ptd beside the program",
}
"""The features that an author may claim besides operators. The models of each are run in any
case; claimed, they are taken whole."""


EXCUSABLE: Final = ("infinity", "value", "denormal", "sign of zero")
"""The kinds in which a result may differ with a reason (`numerics.differences.Kind`). Integers and NaN are not among
them: a deviation there is computed another way, or declined."""


class ClaimsError(DelegraphError):
    """A claim that says nothing: of an operator, feature, dtype or check that the kit does not know."""


class ClaimsWarning(UserWarning):
    """A plug-in is proven without claims: of its operators, none is tried."""


@dataclass(frozen=True, slots=True)
class Deviation:
    """A kind in which results differ from torch's at the edges of dtypes, of which operators, and why.

    `operators` are names in torch's operator database; "*" stands for all, where a device has no other way. Without
    `everywhere` results differ on some processors alone, so that equal ones are no reason to take the claim back.
    """

    kind: str
    reason: str
    operators: Mapping[str, tuple[str, ...]]
    everywhere: bool = True

    def __post_init__(self) -> None:
        _refuse_strangers("kind of deviation that may have a reason", [self.kind], EXCUSABLE)
        if not self.reason.strip():
            raise ClaimsError(f"a deviation in {self.kind} has no reason: say why {', '.join(self.operators)} differ")

    def is_of(self, operator: str, dtype: str) -> bool:
        """Whether an operator of a dtype is among them."""
        return self.names(operator, dtype) or dtype in self.operators.get("*", ())

    def names(self, operator: str, dtype: str) -> bool:
        """Whether it is among them by its name."""
        return dtype in self.operators.get(operator, ())


@dataclass(frozen=True, slots=True)
class Claims:
    """An author's claims for a plug-in.

    `operators` are entries of torch's operator database with their dtypes, `features` are of `FEATURES`, `models` are
    functions, "module:function", that give `(model, args)`, which the plug-in takes whole, `quantizer` is the name of
    the one by which models come to a device that computes in integers, `needs_torch` says that kernels are torch's own,
    `options` are for the partitioner.
    `deviations` are where results at the edges of dtypes differ from torch's. `finite_only` says why a device is held
    to torch's finite results of finite operands alone, "" asks for infinity and NaN as well; `computes_in` is the dtype
    that it rounds them to, if it is another one.
    `tolerances` are (relative, absolute) by dtype; `expected_failures` are checks by id, each with its reason.
    """

    operators: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    features: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    quantizer: str = ""
    needs_torch: bool = False
    options: Mapping[str, Any] = field(default_factory=dict)
    tolerances: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    expected_failures: Mapping[str, str] = field(default_factory=dict)
    deviations: tuple[Deviation, ...] = ()
    finite_only: str = ""
    computes_in: str = ""

    def __post_init__(self) -> None:
        _refuse_strangers("feature", self.features, FEATURES)
        _refuse_strangers("dtype that a device computes in", [self.computes_in] if self.computes_in else [], DTYPES)
        _refuse_strangers("operator", self.operators, database())
        _refuse_strangers("dtype", [d for dtypes in self.operators.values() for d in dtypes], DTYPES)
        for name, dtypes in self.operators.items():
            _refuse_strangers(f"dtype of {name}", dtypes, database()[name])
        for check, reason in self.expected_failures.items():
            if not reason.strip():
                raise ClaimsError(f"the expected failure of {check} has no reason: say why it fails, and where to read")

    @classmethod
    def read(cls, file: str | Path) -> Self:
        """The claims in a TOML file. Raises `ClaimsError` that names entries unknown to the kit."""
        try:
            return cls.from_mapping(tomllib.loads(Path(file).read_text("utf-8")))
        except (OSError, ValueError, TypeError, AttributeError, RecursionError, ClaimsError) as error:
            raise ClaimsError(f"{file}: {error}") from error

    @classmethod
    def from_mapping(cls, content: Mapping[str, Any]) -> Self:
        """The claims in a mapping of the file's form; missing entries claim nothing."""
        _refuse_strangers("table", content, cls.__dataclass_fields__)
        fields = dict(content)
        features = content.get("features", ())
        if isinstance(features, Mapping):
            _refuse_strangers("feature", features, FEATURES)
            fields["features"] = [name for name, claimed in features.items() if claimed]
        for table in ("operators", "tolerances"):
            fields[table] = {name: tuple(value) for name, value in content.get(table, {}).items()}
        fields["deviations"] = tuple(Deviation(**row) for row in content.get("deviations", ()))
        return cls(
            **{**fields, "features": tuple(fields.get("features", ())), "models": tuple(fields.get("models", ()))}
        )

    def to_mapping(self) -> dict[str, Any]:
        """The mapping that `from_mapping` takes, of lists, dicts, strings and numbers."""
        return asdict(self)

    def has(self, operator: str, dtype: str) -> bool:
        """Whether an operator of a dtype is claimed."""
        return dtype in self.operators.get(operator, ())


def database() -> Mapping[str, tuple[str, ...]]:
    """The operators that the kit tries, with their dtypes: the fixed denominator, whatever torch is installed."""
    if not _DATABASE:
        lines = (files(__package__) / "operators.txt").read_text("utf-8").splitlines()
        rows = (line.split(": ") for line in lines if line and not line.startswith("#"))
        _DATABASE.update({name: tuple(dtypes.split()) for name, dtypes in rows})
    return _DATABASE


_DATABASE: dict[str, tuple[str, ...]] = {}


def _refuse_strangers(kind: str, names: Iterable[str], known: Iterable[str]) -> None:
    known = list(known)
    for name in names:
        if name not in known:
            close = get_close_matches(name, known, n=2)
            meant = f"; did you mean {' or '.join(close)}?" if close else f"; there are {', '.join(known[:12])}"
            raise ClaimsError(f"the kit knows no {kind} {name!r}{meant}")
