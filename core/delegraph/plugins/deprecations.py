"""The table of deprecated parts of the plug-in API, and the uses of them in a plug-in or its source.

A row stays for good: a host without the old form takes from it the message for those who still use it.
`docs/plugin-api.md` has the policy; deprecated public names stand where the names do (`delegraph.lazy`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from delegraph.lazy_dataclass import dataclass
from delegraph.plugins.versions import PLUGIN_API, ApiVersion, api_text

__all__ = ["DEPRECATIONS", "Deprecation", "deprecated_uses"]


@dataclass(frozen=True, slots=True)
class Deprecation:
    """A former hook or attribute of a group's interface or, with a `parameter`, that parameter of a hook.

    `instead` is the hook that has its place, under whose name the host then calls the author's, or a few words.
    A function's hook is `__call__`. `since` is the plug-in API that deprecated it, `goes` the one without it.
    """

    group: str
    hook: str
    instead: str
    since: ApiVersion
    goes: ApiVersion
    parameter: str = ""

    @property
    def used(self) -> str:
        """How messages name it: `release()`, `the parameter 'stream' of execute()`."""
        hook = f"{self.hook}()".replace("__call__()", "its call")
        return f"the parameter {self.parameter!r} of {hook}" if self.parameter else hook

    @property
    def is_gone(self) -> bool:
        """Whether this host is without it."""
        return self.goes <= PLUGIN_API

    def __str__(self) -> str:
        if self.is_gone:
            return f"{self.used} went in plug-in API {api_text(self.goes)}: it is {self.instead} now"
        went = f"since plug-in API {api_text(self.since)}, and goes in {api_text(self.goes)}"
        return f"{self.used} is deprecated {went}: use {self.instead}"


DEPRECATIONS: Final[tuple[Deprecation, ...]] = ()
"""Nothing is deprecated in plug-in API 1.0."""


def deprecated_uses(group: str, own: Mapping[str, Sequence[str]]) -> list[Deprecation]:
    """The rows that concern a plug-in of `group` ("delegraph.backends"), gone or not.

    `own` are the hooks that its author wrote, with the names of their parameters.
    """
    return [
        row
        for row in DEPRECATIONS
        if f"delegraph.{row.group}" == group
        and row.hook in own
        and (not row.parameter or row.parameter in own[row.hook])
    ]
