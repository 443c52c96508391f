"""A deployable's Choice and Contents -> Report: what was kept, what left out, and the sizes, for tables and JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from delegraph.devtools.selective_build.choice import Choice
from delegraph.devtools.selective_build.contents import Contents, Share
from delegraph.tables import Table, count

__all__ = ["KeptBackend", "KeptKernels", "Output", "Report"]


@dataclass(frozen=True, slots=True)
class Output:
    """A file that was written."""

    path: str
    kind: str
    nbytes: int


@dataclass(frozen=True, slots=True)
class KeptKernels:
    """A kernel library: the keys kept of it by operator, and how many of its kernels were left out.

    That is None where a library makes its kernels when they are asked for, and was taken whole.
    """

    library: str
    provider: str
    kept: Mapping[str, tuple[str, ...]]
    left_out: int | None


@dataclass(frozen=True, slots=True)
class KeptBackend:
    """A backend that some program has blobs for."""

    backend: str
    provider: str


@dataclass(frozen=True, slots=True)
class Report:
    """The whole report. `programs` has bytes by path, `operators` those that the programs list; the rest is empty where
    only the operators were asked for. `distributions` are in bytes before compression."""

    programs: Mapping[str, int]
    operators: tuple[str, ...]
    outputs: tuple[Output, ...]
    kernels: tuple[KeptKernels, ...] = ()
    backends: tuple[KeptBackend, ...] = ()
    distributions: tuple[Share, ...] = ()
    requirements: tuple[str, ...] = field(default=())

    @classmethod
    def of(
        cls,
        programs: Mapping[str, int],
        operators: Sequence[str],
        outputs: Sequence[Output],
        packed: tuple[Choice, Contents] | None,
    ) -> Report:
        """The report on what was `packed`, if anything was."""
        if packed is None:
            return cls(programs, tuple(operators), tuple(outputs))
        choice, contents = packed
        return cls(
            programs,
            tuple(operators),
            tuple(outputs),
            tuple(_kernels(choice)),
            tuple(KeptBackend(offer.name, offer.provider) for offer in choice.backends),
            contents.shares,
            contents.requirements,
        )

    def to_json(self) -> dict[str, Any]:
        """Plain dicts, lists, strings and numbers."""
        return asdict(self)

    def tables(self) -> Iterator[Table]:
        """Tables for people."""
        kept = [
            (kernels.library, operator, ", ".join(keys))
            for kernels in self.kernels
            for operator, keys in kernels.kept.items()
        ]
        yield Table("kernels", ("library", "operator", "key"), kept)
        plugins = [
            *((kernels.library, kernels.provider, *_counts(kernels)) for kernels in self.kernels),
            *((backend.backend, backend.provider, "backend", "") for backend in self.backends),
        ]
        yield Table("plug-ins", ("name", "distribution", "kept", "left out"), plugins)
        columns = ("distribution", "modules", "bytes", "modules left out", "bytes left out")
        yield Table("code", columns, [_row(share) for share in self.distributions], frozenset(columns[1:]))


def _kernels(choice: Choice) -> Iterator[KeptKernels]:
    for library in choice.libraries:
        every = len(library.registrations.modules)
        left_out = every - sum(map(len, library.kept.values())) if every else None
        yield KeptKernels(library.offer.name, library.offer.provider, library.kept, left_out)


def _counts(kernels: KeptKernels) -> tuple[str, str]:
    if kernels.left_out is None:
        return "all kernels", ""
    return f"{count(sum(map(len, kernels.kept.values())))} kernels", f"{count(kernels.left_out)} kernels"


def _row(share: Share) -> tuple[str, ...]:
    kept, left_out = (*share.kept.values(), *share.data.values()), share.left_out.values()
    name = f"{share.distribution} {share.version}"
    return name, count(len(share.kept)), count(sum(kept)), count(len(share.left_out)), count(sum(left_out))
