"""A loaded method -> a callable with the model's own structure of arguments and results."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from delegraph.errors import InvalidArgument, NotSupported, printable
from delegraph.program import schema
from delegraph.runtime.calls.arguments import spec_of
from delegraph.runtime.calls.pytree import LEAF
from delegraph.runtime.method import Method
from delegraph.runtime.method_meta import MethodMeta

if TYPE_CHECKING:
    from delegraph.runtime.batched_calls import BatchedCalls
    from delegraph.runtime.submitted_calls import Call, SubmittedCalls
    from delegraph.runtime.workers import Workers

__all__ = ["StructuredMethod"]


class StructuredMethod:
    """A loaded method that is called with the model's own arguments.

    Without metadata about their structure, arguments are positional and flat and the result is a list of outputs.
    `types` are the caller's classes of NamedTuples and dataclasses in the result, by name.
    """

    def __init__(
        self,
        method: Method,
        container: schema.ContainerMetadata,
        types: Mapping[str, type[Any]] = MappingProxyType({}),
        workers: Workers | None = None,
        batched: BatchedCalls | None = None,
    ) -> None:
        self.method = method
        """The method that was loaded, the first of its `workers`."""
        self._name = method.metadata.name()
        self._arguments = method.arguments
        result = spec_of(container.encoded_out_str, method.metadata.num_outputs())
        self._result = result and result.with_types(types)
        self._workers = workers
        self._execute = method.execute if workers is None else workers.execute
        if batched is not None:
            self._submitted, self._execute = batched, batched.execute

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run once; the result is the caller's own, unless it was loaded with `outputs="borrow"`.

        `out=`, where the model has no argument of that name, takes arrays or torch tensors in the structure of the
        result, which get it and are returned; None stands for any that is not given. See `Method.execute`.

        Raises `InvalidArgument` or `InvalidType` naming the argument, and `Busy` where `Concurrency` bounds waiting.
        """
        inputs, out = self._flat(args, kwargs)
        return self._structured(self._execute(inputs, out=out))

    def submit(self, *args: Any, **kwargs: Any) -> Call:
        """Have it called in a thread of the module's: a `concurrent.futures.Future` of what calling it gives, whose
        `cancel()` also stops a run. Arrays must not change before it is done. Raises as calling it."""
        return self._submitted.submit(*self._flat(args, kwargs), self._structured)

    async def acall(self, *args: Any, **kwargs: Any) -> Any:
        """The result of `submit`, awaited; if the task is cancelled, so is the call, and no other. Raises as both."""
        submitted = self._submitted
        return await submitted.result(submitted.submit(*self._flat(args, kwargs), self._structured))

    def map(self, *iterables: Iterable[Any], buffersize: int | None = None) -> Iterator[Any]:
        """The results of calling it on the items of `iterables`, in their order, as the built-in `map` gives them.

            for embedding in model.map(batches): ...

        Calls run in threads of the module's, as many at a time as `Concurrency` says. The iterables are read as results
        are taken: at most `buffersize` items before the first result, and one more for each (None: twice as many as
        run at a time). Arrays must not change before their result is there. A call that raises does so where its
        result would stand, and ends it, as does whoever stops taking results: what is left is cancelled.

        Raises `InvalidArgument` for a `buffersize` below 1 or no iterable, and what `submit` and the calls raise.
        """
        from delegraph.runtime.mapped_calls import calls_ahead, results_in_order

        if not iterables:
            raise InvalidArgument(f"method {self._name!r}: map takes an iterable for each argument; there is none")
        ahead = calls_ahead(self._submitted.workers, buffersize)
        return results_in_order(self.submit, zip(*iterables, strict=False), ahead)

    def execute(self, inputs: Sequence[object]) -> list[Any]:
        """Run once on the flat inputs, as `Method.execute`, on a worker: from any thread, as calling it."""
        return self._execute(inputs)

    @property
    def output_names(self) -> tuple[str, ...]:
        """A name for each flat output: `output`, or `output_0` … by place; by key where the result has keys."""
        import re

        count = self.metadata.num_outputs()
        paths = [f"[{place}]" for place in range(count)] if self._result is None else list(self._result.paths())
        words = ["_".join(re.findall(r"\w+", path)) for path in paths if count > 1 or "'" in path] or [""]
        return tuple(f"output_{word}".strip("_") if not word or word[0].isdigit() else word for word in words)

    def close(self) -> None:
        """Refuse new calls, wait for the others, and destroy the delegates."""
        if self._workers is not None:
            self._workers.close()
        if "_submitted" in self.__dict__:
            self._submitted.close()

    @cached_property
    def _submitted(self) -> SubmittedCalls:
        from delegraph.runtime.submitted_calls import SubmittedCalls  # asyncio, where it is asked for

        if self._workers is None:
            raise NotSupported(
                f"method {self._name!r} is isolated, runs in its callers' threads: await asyncio.to_thread(model, …)"
            )
        return SubmittedCalls(self._workers)

    def _flat(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Sequence[object], Sequence[object] | None]:
        """The inputs in order, and where the outputs are to go."""
        out = kwargs.pop("out", None) if "out" in kwargs and not self._arguments.has("out") else None
        try:
            inputs = self._arguments.flatten(args, kwargs)
        except InvalidArgument as error:
            raise InvalidArgument(f"method {self._name!r} {error}") from error
        return inputs, None if out is None else self._flat_result(out)

    def _structured(self, outputs: list[Any]) -> Any:
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
