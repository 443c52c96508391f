"""Programs and what is installed -> the distributions that run them: the host, kernel libraries, backends."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from delegraph.devtools.selective_build.choice import choose
from delegraph.devtools.selective_build.deployed import OrderOfNames
from delegraph.devtools.selective_build.distributions import Distribution, Distributions
from delegraph.devtools.selective_build.needs import ProgramNeeds
from delegraph.errors import PluginNotFound
from delegraph.plugins.discovery import HOST, normalised
from delegraph.plugins.registry import default_registry
from delegraph.program.dtypes import is_extended

__all__ = ["Required", "required", "with_requirements"]


@dataclass(frozen=True, slots=True)
class Required:
    """A distribution, with an extra of it or "", and the plug-ins for which programs need it."""

    distribution: Distribution
    extra: str
    plugins: tuple[str, ...]

    @property
    def text(self) -> str:
        """As pip takes it, in the version that is installed here."""
        extra = f"[{self.extra}]" if self.extra else ""
        return f"{self.distribution.name}{extra}=={self.distribution.version}"


def required(programs: Sequence[ProgramNeeds], kernels: OrderOfNames | None) -> list[Required]:
    """The distributions whose plug-ins the programs need, the host first, each in the version that is installed.

    Raises `OperatorMissing`, `BackendMissing` and `PluginError` as `choose` does.
    """
    offers = choose(programs, default_registry(), kernels).offers
    distributions = Distributions()
    extra = "bfloat16" if any(is_extended(dtype) for needs in programs for dtype in needs.dtypes) else ""
    names = dict.fromkeys(offer.distribution for offer in offers if offer.distribution != HOST)
    plugins = {name: tuple(offer.name for offer in offers if offer.distribution == name) for name in names}
    return [
        Required(distributions.named(HOST), extra, ()),
        *(Required(distributions.named(name), "", own) for name, own in plugins.items()),
    ]


def with_requirements(distributions: Sequence[Distribution]) -> list[Distribution]:
    """These, and what they require, and so on, as far as it is installed here."""
    installed = Distributions()
    names = {normalised(each.name): each for each in distributions}
    waiting = list(distributions)
    while waiting:
        for name in waiting.pop().requirements.keys() - names.keys():
            with suppress(PluginNotFound):  # for other platforms, by its marker
                names[name] = installed.named(name)
                waiting.append(names[name])
    return list(names.values())
