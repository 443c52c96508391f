"""Texts of a file are told so that no terminal acts on them, and no reader installs packages that only they name."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from delegraph.errors import DelegraphError
from delegraph.interfaces import BlobStamp
from delegraph.program.schema import Chain, Frame, KernelCall, Operator
from delegraph.runtime import BackendInterface, Compatibility, Runtime, Verdict, load

EVIL = "a\x1b[2J\x07\rb\u202e\nwhat to do: pip install evil"


class Backend(BackendInterface):
    def __init__(self, verdict: Verdict = Verdict.OK) -> None:
        self.verdict = verdict

    def check(self, stamp: BlobStamp | None) -> Compatibility:
        return Compatibility(self.verdict, f"not {stamp}")

    def init(self, context: Any, processed: Any, compile_specs: Any) -> Any:
        raise KeyError(EVIL)

    def execute(self, context: Any, handle: Any, args: Any) -> None:
        raise ValueError(EVIL)


def told(build: Any, *outputs: int, backend: BackendInterface | None = None, inputs: Any = (), args: Any = ()) -> str:
    """The message of what goes wrong with the plan that was built, at load or when it runs."""
    program = build.program(build.plan(inputs, outputs, name=EVIL))
    with pytest.raises(DelegraphError) as caught:
        Runtime(kernels=[], backends={EVIL: backend} if backend else {}).load_program(program).load_method(
            EVIL
        ).execute(args)
    return str(caught.value)


def is_harmless(text: str) -> bool:
    """Whether a terminal shows `text` as it is, and no line of it is the file's."""
    lines = text.split("\n")
    return all(line.isprintable() for line in lines) and not any(
        line.strip().startswith("what to do:") for line in lines
    )


def test_operators_without_kernels(build: Any) -> None:
    build.call(f"{EVIL}.out", build.tensor(1))
    assert is_harmless(told(build))


def test_operators_that_fail(build: Any) -> None:
    from delegraph.runtime import KernelLibrary

    library = KernelLibrary("broken")

    @library.kernel(f"{EVIL}.out")
    def fail(context: Any, out: Any) -> None:
        raise ValueError(EVIL.replace("\n", " "))

    build.operators.append(Operator(EVIL, "out"))
    x = build.tensor(1)
    build.instructions.append(KernelCall(0, (x, x)))
    plan = build.plan(name=EVIL)
    chain = Chain(plan.chains[0].instructions, stacktrace=((Frame(EVIL, 1, EVIL, EVIL),),))
    from dataclasses import replace

    method = Runtime(kernels=[library]).load_program(build.program(replace(plan, chains=(chain,)))).load_method(EVIL)
    with pytest.raises(DelegraphError) as caught:
        method.execute([])
    assert is_harmless(str(caught.value))


@pytest.mark.parametrize("verdict", list(Verdict))
def test_backends(build: Any, verdict: Verdict) -> None:
    x = build.tensor(1)
    build.delegate(EVIL, x, build.tensor(1), specs=[BlobStamp(EVIL, EVIL, EVIL, 1).to_compile_spec()])
    text = told(build, backend=Backend(verdict)).replace("while initialising: KeyError: " + repr(EVIL), "")
    assert is_harmless(text)
    assert "pip install evil" not in text.replace(repr(EVIL)[1:-1], "")


def test_missing_backends(build: Any) -> None:
    build.delegate(EVIL, build.tensor(1), build.tensor(1), specs=[BlobStamp("x", "evil", "6.6", 1).to_compile_spec()])
    text = told(build)
    assert is_harmless(text)
    assert "pip install" not in text.replace(repr(EVIL)[1:-1], "")
    assert "'evil' '6.6', which is not installed; install the distribution that offers this backend, from where" in text


def test_methods_and_their_arguments(build: Any) -> None:
    from core.tests.runtime.test_module import LEAF, arguments

    x = build.tensor(1)
    program = build.program(build.plan([x], [x], name=EVIL, trees=(arguments(**{EVIL: LEAF}), "")))
    module = load(program, method=EVIL)
    assert repr(module).isprintable()
    assert repr(module.program).isprintable()
    for call in (lambda: module["other"], lambda: module(1), lambda: module(**{EVIL: np.ones(3)})):
        with pytest.raises(DelegraphError) as caught:
            call()
        assert is_harmless(str(caught.value))


def test_every_message_of_ours() -> None:
    assert str(DelegraphError("ok\n  \tfine")) == "ok\n  \tfine"
    assert str(DelegraphError("\x1b[31m\x07\r\u202e\x9b")) == r"\x1b[31m\x07\r\u202e\x9b"
