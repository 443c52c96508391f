"""The process of one isolated program: `python -m delegraph.runtime.isolation.child`, requests in, replies out.

    before the program is read    no network, no process, no file that is written
    once its methods are loaded   no file either

In between each method runs once on zeros, in a session that is thrown away: what Python and engines import when they
first run is imported then. What a run prints goes to standard error.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from delegraph.errors import DelegraphError, Internal, cause_of
from delegraph.plugins.all_modules import import_all_modules
from delegraph.program.schema import Tensor
from delegraph.runtime.isolation.frames import Arrays, read, value_of, values_from, write
from delegraph.runtime.isolation.sandbox import Allowed, restrict

if TYPE_CHECKING:
    from delegraph.runtime.module import Module


def main() -> None:
    """Serve requests until the other end closes the pipe."""
    requests, replies = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    with suppress(EOFError, BrokenPipeError):
        request, arrays = read(requests)
        module = _answered(replies, lambda: _loaded(request, arrays))
        while module is not None:
            request, arrays = read(requests)
            action, sent = _ACTIONS[request["action"]], arrays
            _answered(replies, lambda: (module, action(module, request, sent)))  # noqa: B023


def _answered(replies: BinaryIO, action: Callable[[], tuple[Module, object]]) -> Module | None:
    """Do it and reply; the module, or None if it raised."""
    arrays: Arrays = []
    try:
        module, result = action()
        value = value_of(result, arrays)
    except Exception as error:
        write(replies, _told(error))
        return None
    write(replies, {"value": value}, arrays)
    return module


def _told(error: Exception) -> dict[str, object]:
    fault = error if isinstance(error, DelegraphError) else Internal(cause_of(error))
    return {"error": type(fault).__name__, "message": str(fault)}


def _loaded(request: Mapping[str, Any], arrays: Arrays) -> tuple[Module, object]:
    lacking = restrict(Allowed.READING)
    from delegraph.program.limits import Limits
    from delegraph.runtime.module import load

    sources = [source if isinstance(source, str) else arrays[source] for source in request["sources"]]
    module = load(
        *[source if isinstance(source, str) else source.data for source in sources[:1]],
        data_path=[source if isinstance(source, str) else source.data for source in sources[1:]] or None,
        limits=Limits(**request["limits"]),
        trusted_keys=None if request["keys"] is None else [bytes.fromhex(key) for key in request["keys"]],
        **request["options"],
    )
    for name in module.methods:
        module[name]
    _rehearse(module)
    return module, lacking or restrict(Allowed.NOTHING)


def _rehearse(module: Module) -> None:
    """Run each method of another session once; what it raises, for inputs of zeros, is nobody's business."""
    plugins = sorted({name.partition(".")[0] for name in sys.modules if name.startswith("delegraph_")})
    core = ("delegraph.runtime", "delegraph.program", "delegraph.interfaces")
    import_all_modules([*core, *(f"{plugin}.runtime" for plugin in plugins)])
    _told(ValueError("\x1b"))  # what escapes text is imported
    session = module.session()
    for name in module.methods:
        with suppress(Exception):
            method = session[name].method
            session.state.restore({key: np.zeros_like(array) for key, array in session.state.items()})
            method.execute([_zeros(method.metadata.input_value(i)) for i in range(method.metadata.num_inputs())])


def _zeros(value: object) -> object:
    from delegraph.program.dtypes import numpy_dtype
    from delegraph.program.schema import TensorShapeDynamism

    if not isinstance(value, Tensor):
        return getattr(value, "value", 0)
    fixed = value.shape_dynamism is TensorShapeDynamism.STATIC
    return np.zeros(value.sizes if fixed else [min(size, 1) for size in value.sizes], numpy_dtype(value.scalar_type))


# ---- requests ------------------------------------------------------------------------------------------------------


def _execute(module: Module, request: Mapping[str, Any], arrays: Arrays) -> object:
    return module[request["method"]].method.execute(values_from(request["inputs"], arrays))


def _get_state(module: Module, request: Mapping[str, Any], arrays: Arrays) -> object:
    return [np.array(module.state[request["name"]])]


def _set_state(module: Module, request: Mapping[str, Any], arrays: Arrays) -> object:
    module.state[request["name"]] = arrays[0]
    return None


def _reset_state(module: Module, request: Mapping[str, Any], arrays: Arrays) -> object:
    module.state.reset()
    return None


def _state_names(module: Module, request: Mapping[str, Any], arrays: Arrays) -> object:
    return list(module.state)


_ACTIONS = {
    "execute": _execute,
    "get state": _get_state,
    "set state": _set_state,
    "reset state": _reset_state,
    "state": _state_names,
}


if __name__ == "__main__":
    main()
