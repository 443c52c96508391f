"""A loaded method -> a callable with the model's own structure of arguments and results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from delegraph.errors import InvalidArgument
from delegraph.program import schema
from delegraph.runtime.calls.arguments import spec_of
from delegraph.runtime.calls.pytree import LEAF
from delegraph.runtime.method import Method
from delegraph.runtime.method_meta import MethodMeta
from delegraph.tables import printable

__all__ = ["StructuredMethod"]


class StructuredMethod:
    """A loaded method that is called with the model's own arguments.

    Without metadata about their structure, arguments are positional and flat and the result is a list of outputs.
    `types` are the caller's classes of NamedTuples and dataclasses in the result, by name.
    """

    def __init__(
        self, method: Method, container: schema.ContainerMetadata, types: Mapping[str, type[Any]] = MappingProxyType({})
    ) -> None:
        self.method = method
        self._name = method.metadata.name()
        self._arguments = method.arguments
        result = spec_of(container.encoded_out_str, method.metadata.num_outputs())
        self._result = result and result.with_types(types)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run once; the result is the caller's own, unless it was loaded with `outputs="borrow"`.

        `out=`, where the model has no argument of that name, takes arrays or torch tensors in the structure of the
        result, which get it and are returned; None stands for any that is not given. See `Method.execute`.

        Raises `InvalidArgument` or `InvalidType` naming the argument.
        """
        out = kwargs.pop("out", None) if "out" in kwargs and not self._arguments.has("out") else None
        try:
            flat = self._arguments.flatten(args, kwargs)
        except InvalidArgument as error:
            raise InvalidArgument(f"method {self._name!r} {error}") from error
        outputs = self.method.execute(flat, out=None if out is None else self._flat_result(out))
        if self._result is LEAF:
            return outputs[0]
        return outputs if self._result is None else self._result.unflatten(outputs)

    def _flat_result(self, out: object) -> Sequence[object]:
        if self._result is None:
            return out if isinstance(out, list | tuple) else [out]
        try:
            return self._result.flatten(out)
        except InvalidArgument as error:
            raise InvalidArgument(f"method {self._name!r}, out: {error}") from error

    @property
    def metadata(self) -> MethodMeta:
        """The method's inputs and outputs, flattened."""
        return self.method.metadata

    def __repr__(self) -> str:
        return f"<method {printable(self._name)}{self._arguments} -> {self._result or 'a list'}>"

    def _repr_html_(self) -> str:
        """The HTML that notebooks show."""
        return self.metadata._repr_html_()
