"""The version of the plug-in API that this host offers, and whether it is enough for a plug-in.

A plug-in may name the *lowest* API that it needs (never the newest that it was built with) as `delegraph_api`, on its
object or on its module; (1, 0) if it does not. A newer one than the host's is refused. An older one never is by its
number: uses of parts that have gone since are refused (`deprecations.py`).
"""

from __future__ import annotations

from typing import Final, TypeAlias

__all__ = ["PLUGIN_API", "ApiVersion", "api_text", "declared_api", "mismatch"]

ApiVersion: TypeAlias = tuple[int, int]

PLUGIN_API: Final[ApiVersion] = (1, 1)
"""The plug-in API that this version of Delegraph offers."""


def declared_api(declaration: object) -> ApiVersion:
    """The API that `declaration` (an object or a module) names as the lowest it needs; (1, 0) if it names none.

    Raises `TypeError` unless it is a pair of ints.
    """
    api = getattr(declaration, "delegraph_api", (1, 0))
    if not isinstance(api, tuple) or [type(part) for part in api] != [int, int]:
        raise TypeError(f"delegraph_api is {api!r}; it has to be a pair of ints such as (1, 0)")
    return api


def mismatch(needed: ApiVersion, offered: ApiVersion = PLUGIN_API) -> str:
    """Why a plug-in that needs API `needed` cannot run where `offered` is offered, and what to do; "" if it can."""
    if needed <= offered:
        return ""
    problem = f"it needs plug-in API {api_text(needed)}, and this Delegraph offers {api_text(offered)}"
    return f"{problem}; upgrade Delegraph (`pip install --upgrade delegraph`) or install an older release of it"


def api_text(api: ApiVersion) -> str:
    """`1.0`."""
    return ".".join(map(str, api))
