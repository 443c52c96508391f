"""A blob, opened: its session, and what that reads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from delegraph.lazy_dataclass import dataclass
from delegraph_cpu.blob import Blob
from delegraph_cpu.runtime.open_session import Session

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Opened"]


@dataclass(frozen=True, slots=True, weakref_slot=True, eq=False)
class Opened:
    """A blob's session, which loads of the same memory share. It reads `memory`, the weights, without owning it."""

    session: Session
    blob: Blob
    memory: tuple[NDArray[Any], ...]
