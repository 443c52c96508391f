"""Functionalisation and decomposition node by node: the same values and the same operators as torch's own re-trace."""

from __future__ import annotations

import copy
import io
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch
from core.tests.aot.propagation import assert_values_are_what_operators_give
from torch.export import Dim, ExportedProgram
from torch.utils import _pytree as pytree

from delegraph.aot.edge.to_edge_dialect import to_edge_dialect
from delegraph.aot.functional.functionalize import fake_mode_of, functionalize
from delegraph.errors import LoweringError

aten = torch.ops.aten


def export(model: torch.nn.Module, args: tuple[Any, ...], dynamic_shapes: Any = None) -> ExportedProgram:
    return torch.export.export(model.eval(), args, dynamic_shapes=dynamic_shapes)


def operators(program: ExportedProgram) -> Counter[str]:
    return Counter(str(node.target) for node in program.graph.nodes if node.op == "call_function")


def assert_same_behaviour(
    model: torch.nn.Module, program: ExportedProgram, args: tuple[Any, ...], calls: int = 1
) -> None:
    """Results, and what happens to buffers and inputs, over several calls."""
    assert_values_are_what_operators_give(program)
    reference, module = copy.deepcopy(model), program.module()
    with torch.no_grad():
        for _ in range(calls):
            ours, theirs = copy.deepcopy(args), copy.deepcopy(args)
            got, wanted = module(*ours), reference(*theirs)
            torch.testing.assert_close(pytree.tree_leaves(got), pytree.tree_leaves(wanted))
            torch.testing.assert_close(ours, theirs)
    buffers = dict(module.named_buffers())
    for name, wanted in reference.named_buffers():
        if name in buffers:
            torch.testing.assert_close(buffers[name], wanted)


class Encoder(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
        self.lstm = torch.nn.LSTM(16, 8, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out, _ = self.lstm(self.layer(x))
        return torch.nn.functional.silu(out)


class ConvNet(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 4, 3, padding=1)
        self.norm = torch.nn.BatchNorm2d(4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.nn.functional.pad(self.norm(self.conv(x)).relu_(), (1, 1, 1, 1))
        return torch.nn.functional.adaptive_avg_pool2d(y, 2).flatten(1)


@pytest.mark.parametrize(
    ("model", "shape"), [(Encoder(), (2, 5, 16)), (ConvNet(), (1, 3, 8, 8))], ids=["encoder", "conv net"]
)
def test_gives_the_operators_of_torchs_own_decomposition(model: torch.nn.Module, shape: tuple[int, ...]) -> None:
    args = (torch.randn(shape),)
    program = export(model, args)
    ours = functionalize(program, {})
    theirs = program.run_decompositions()
    copies = {"aten.clone.default"}  # dropout in eval mode is a clone there and nothing here
    assert {o: n for o, n in operators(ours).items() if o not in copies} == {
        o: n for o, n in operators(theirs).items() if o not in copies
    }
    assert_same_behaviour(model, ours, args)


class Writes(torch.nn.Module):
    """Every way of writing that the graph can hold, with views made before and read after."""

    def __init__(self, write: Callable[[torch.Tensor, torch.Tensor], None]) -> None:
        super().__init__()
        self.register_buffer("cache", torch.arange(24.0).reshape(4, 6))
        self.write = write

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        cache: torch.Tensor = self.cache
        row, flat, turned = cache[1], cache.view(-1), cache.t()
        self.write(cache, x)
        return row + 0, flat * 2, turned.sum(0), cache.clone()


WRITES: dict[str, Callable[[torch.Tensor, torch.Tensor], Any]] = {
    "whole": lambda c, x: c.add_(1),
    "copy": lambda c, x: c.copy_(x),
    "row": lambda c, x: c[2].mul_(3),
    "column": lambda c, x: c[:, 1].copy_(x[:, 0]),
    "slice of slice": lambda c, x: c[1:3, ::2].add_(5),
    "narrow": lambda c, x: c.narrow(1, 2, 2).zero_(),
    "view": lambda c, x: c.view(2, 12)[0].fill_(7),
    "transpose": lambda c, x: c.t()[0].sub_(1),
    "permute": lambda c, x: c.permute(1, 0)[2:4].mul_(2),
    "transpose_": lambda c, x: c.clone().transpose_(0, 1).add_(1),
    "other overloads": lambda c, x: c.abs().add(1).pow_(x).floor_divide_(x.abs() + 1).double().float_power_(x.double()),
    "unsqueeze": lambda c, x: c.unsqueeze(0)[0, 1].add_(2),
    "diagonal": lambda c, x: c.diagonal().fill_(0),
    "flatten": lambda c, x: c.flatten()[3:5].add_(9),
    "index_put": lambda c, x: c.index_put_((torch.tensor([0, 3]),), x[:2]),
    "masked": lambda c, x: c.masked_fill_(x > 0, 4.0),
    "twice": lambda c, x: (c[0].add_(1), c[:, 0].mul_(2)),
    "split": lambda c, x: c.split(2)[1].mul_(2),
    "split to sizes": lambda c, x: c.split_with_sizes([1, 3, 2], 1)[2].add_(x[:, :2]),
    "chunk": lambda c, x: c.chunk(3, dim=1)[1].copy_(x[:, :2]),
    "unbind": lambda c, x: c.unbind(1)[-1].zero_(),
    "dtype": lambda c, x: c[0].copy_((x[0] > 0).to(torch.int64)),
    "input": lambda c, x: x.add_(1),
}


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_a_write_is_seen_by_every_alias(write: Callable[[torch.Tensor, torch.Tensor], None]) -> None:
    model, args = Writes(write), (torch.linspace(-1, 1, 24).reshape(4, 6),)
    functional = functionalize(export(model, args), {})
    assert not any(getattr(n.target, "_schema", None) and n.target._schema.is_mutable for n in functional.graph.nodes)
    assert_same_behaviour(model, functional, args, calls=3)
    assert_same_behaviour(model, to_edge_dialect(functionalize(export(model, args), {})), args, calls=3)


def test_a_row_is_written_to_any_number_of_rows() -> None:
    """(4,) and (rows, 4): Python compares 4 with the number of rows before it compares how many sizes there are."""

    class Rows(torch.nn.Module):
        def forward(self, row: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
            y = x * 2
            return y.copy_(row) + x

    args = (torch.randn(4), torch.randn(4, 4))
    functional = functionalize(export(Rows(), args, dynamic_shapes=({}, {0: Dim("rows", min=2, max=8)})), {})
    assert_same_behaviour(Rows(), functional, args)
    assert_same_behaviour(Rows(), functional, (torch.randn(4), torch.randn(6, 4)))


def test_one_value_that_is_written_to_several_buffers() -> None:
    """The signature tells outputs by their names: each new value has one of its own."""

    class Remembers(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            for name in ("total", "latest", "again"):
                self.register_buffer(name, torch.zeros(3))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            new = self.total + x
            for buffer in (self.total, self.latest, self.again):
                buffer.copy_(new)
            return new

    args = (torch.tensor([1.0, 2.0, 3.0]),)
    functional = functionalize(export(Remembers(), args), {})
    assert len(functional.graph_signature.buffers_to_mutate) == 3
    assert_same_behaviour(Remembers(), functional, args, calls=3)


def test_a_write_under_no_grad_is_seen_outside() -> None:
    class NoGrad(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = x * 2
            with torch.no_grad():
                z = y.sum()
            return y + z

    args = (torch.randn(3),)
    assert_same_behaviour(NoGrad(), functionalize(export(NoGrad(), args), {}), args)


def test_autocast_becomes_casts() -> None:
    class Mixed(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = torch.nn.Linear(4, 4)

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
            with torch.autocast("cpu", dtype=torch.bfloat16):
                y = self.linear(x)
                z = y.softmax(-1) + x
                with torch.autocast("cpu", enabled=False):
                    w = self.linear(x)
            return y.float() + 1, z, w, x @ x.t()

    model, args = Mixed().eval(), (torch.randn(3, 4),)
    program = functionalize(export(model, args), {})
    assert "wrap_with_autocast" not in str(program.graph)
    assert_same_behaviour(model, program, args)
    assert_same_behaviour(model, to_edge_dialect(program), args)


class Cells(torch.nn.Module):
    """Operators whose decomposition changes its own intermediates."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.gru = torch.nn.LSTMCell(4, 5), torch.nn.GRUCell(4, 5)

    def forward(self, x: torch.Tensor, h: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return *self.lstm(x, (h, h)), self.gru(x, h), torch.nn.functional.cosine_similarity(h, h + 1)


def test_in_place_calls_inside_decompositions_go() -> None:
    model, args = Cells().eval(), (torch.randn(2, 4), torch.randn(2, 5))
    assert_same_behaviour(model, functionalize(export(model, args), {}), args)


def test_a_program_that_was_saved_and_loaded() -> None:
    class Casts(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.to(torch.float16).softmax(-1) * 2

    buffer = io.BytesIO()
    torch.export.save(export(Casts(), (torch.randn(2, 3),)), buffer)
    buffer.seek(0)
    program = torch.export.load(buffer)
    silent = [node for node in program.graph.nodes if node.op == "call_function" and "val" not in node.meta]
    assert silent, "torch's serialisation keeps the values of calls without results now"
    assert_same_behaviour(Casts(), functionalize(program, {}), (torch.randn(2, 3),))


def test_operators_that_are_kept_stay_whole_where_the_filter_says_so() -> None:
    program = export(torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Linear(8, 2)), (torch.randn(1, 4),))
    wide = lambda node: node.meta["val"].shape[-1] == 8  # noqa: E731
    assert operators(functionalize(program, {aten.linear.default: None}))["aten.linear.default"] == 2
    partly = operators(functionalize(program, {aten.linear.default: wide}))
    assert partly["aten.linear.default"] == 1
    assert partly["aten.addmm.default"] == 1


def test_what_is_kept_stays_whole_inside_of_what_is_decomposed() -> None:
    class Recurrent(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lstm = torch.nn.LSTM(3, 5, batch_first=True)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.lstm(x)[0]

    args = (torch.randn(1, 4, 3),)
    program = export(Recurrent(), args)
    kept = functionalize(program, {aten.linear.default: None})
    assert operators(kept)["aten.linear.default"] == 5, "one for all inputs, one for the state in each step"
    assert "aten.addmm.default" not in operators(kept)
    on_weights = lambda node: all(a.op == "placeholder" for a in node.args[1:]) and node.args[0].op != "placeholder"  # noqa: E731
    steps = lambda node: on_weights(node) and node.meta["val"].shape[0] == 1  # noqa: E731
    partly = functionalize(program, {aten.linear.default: steps})
    assert operators(partly)["aten.linear.default"] == 4
    assert operators(partly)["aten.addmm.default"] == 1
    for each in (kept, partly):
        with torch.no_grad():
            torch.testing.assert_close(each.module()(*args), program.module()(*args))


def test_dynamic_shapes_stay_symbolic() -> None:
    class Attention(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attention = torch.nn.MultiheadAttention(8, 2, batch_first=True)

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, int]:
            y, _ = self.attention(x, x, x)
            return y.reshape(x.shape[0] * x.shape[1], 8), torch.arange(x.shape[1]), x.shape[0] * 2

    shapes = ({0: Dim("batch", max=8), 1: Dim("length", max=16)},)
    model = Attention().eval()
    program = to_edge_dialect(functionalize(export(model, (torch.randn(3, 5, 8),), shapes), {}))
    for batch, length in ((3, 5), (1, 16), (8, 2)):
        args = (torch.randn(batch, length, 8),)
        with torch.no_grad():
            torch.testing.assert_close(program.module()(*args), model(*args))


def test_a_size_that_somebody_elses_tracing_left_unclaimed() -> None:
    """As ExecuTorch's `to_edge` leaves the program that it is given."""

    class Narrowed(torch.nn.Module):
        def forward(self, x: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
            start = at[0].item()
            torch._check(start >= 0)
            torch._check(start + 2 <= x.shape[0])
            return x.narrow(0, start, 2)  # type: ignore[arg-type]

    program = torch.export.export(Narrowed(), (torch.randn(8, 3), torch.tensor([1])))
    env = fake_mode_of(program).shape_env
    assert env is not None
    env.create_unbacked_symint()
    assert str(functionalize(program, {}).graph_signature)


def test_the_given_program_is_left_as_it_was() -> None:
    program = export(Writes(WRITES["row"]), (torch.zeros(4, 6),))
    before = str(program)
    to_edge_dialect(functionalize(program, {}))
    assert str(program) == before


def test_a_composite_operator_is_traced_once_per_signature(monkeypatch: pytest.MonkeyPatch) -> None:
    from delegraph.aot.functional.decompose import Decompositions

    traced: list[object] = []
    original = Decompositions._trace
    monkeypatch.setattr(
        Decompositions, "_trace", lambda self, op, *rest: (traced.append(op), original(self, op, *rest))[1]
    )
    layers = torch.nn.Sequential(*(torch.nn.Linear(4, 4) for _ in range(10)))
    functionalize(export(layers, (torch.randn(1, 4),)), {})
    assert traced == [aten.linear.default]


def test_zeros_of_both_signs_are_two_signatures() -> None:
    class Quotients(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
            return torch.true_divide(x, 0.0), torch.true_divide(x, -0.0)

    above, below = functionalize(export(Quotients(), (torch.ones(1),)), keep={}).module()(torch.ones(1))
    assert (above, below) == (float("inf"), -float("inf"))


def test_a_changed_parameter_is_refused() -> None:
    class Learns(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.zeros(2), requires_grad=False)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.weight.add_(1)
            return x + self.weight

    text = r"changes its parameter weight; only buffers can be changed: register it as a buffer \(register_buffer\)"
    with pytest.raises(LoweringError, match=text) as error:
        functionalize(export(Learns(), (torch.randn(2),)), {})
    assert "in forward: self.weight.add_(1)" in str(error.value)


def test_a_changed_plain_tensor_becomes_a_buffer() -> None:
    class Counts(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.total = torch.zeros(2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.total.add_(x)
            return self.total * 2

    program = functionalize(export(Counts(), (torch.ones(2),)), {})
    assert [*program.graph_signature.buffers_to_mutate.values()] == ["total"]
    assert "total" not in program.state_dict


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("as_parameter", [False, True])
def test_a_changed_buffer_that_another_shows_is_refused(dtype: torch.dtype, as_parameter: bool) -> None:
    class Window(torch.nn.Module):
        def __init__(self, row: int) -> None:
            super().__init__()
            memory = torch.zeros(2, 4, dtype=dtype)
            self.register_buffer("kept", memory[0])
            if as_parameter:
                self.newest = torch.nn.Parameter(memory[row], requires_grad=False)
            else:
                self.register_buffer("newest", memory[row, 1:])

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.kept.add_(x)
            return self.newest * 2

    x = (torch.ones((), dtype=dtype),)
    functionalize(export(Window(1), x), {})  # other memory
    message = r"changes its buffer 'kept', and 'newest' shows the same memory(.|\n)*as self\.kept\[…\]"
    with pytest.raises(LoweringError, match=message) as error:
        functionalize(export(Window(0), x), {})
    assert "in forward: self.kept.add_(x)" in str(error.value)


def test_changed_buffers_may_lie_beside_each_other_in_one_memory() -> None:
    class Cache(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            both = torch.zeros(2, 4)
            self.register_buffer("key", both[0])
            self.register_buffer("value", both[1])

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.key.add_(x)
            return self.key + self.value

    args = (torch.randn(4),)
    assert_same_behaviour(Cache(), functionalize(export(Cache(), args), {}), args)


def test_a_model_in_training_mode_is_told_to_be_put_into_eval_mode() -> None:
    program = torch.export.export(torch.nn.BatchNorm1d(3).train(), (torch.randn(4, 3),))
    with pytest.raises(LoweringError, match=r"training mode: call model\.eval\(\)"):
        functionalize(program, {})


def test_a_conjugate_is_computed() -> None:
    class Conjugate(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.conj() * 2 + x

    args = (torch.randn(3, dtype=torch.complex64),)
    program = to_edge_dialect(functionalize(export(Conjugate(), args), {}))
    assert "_conj.default" not in " ".join(operators(program))
    assert_same_behaviour(Conjugate(), program, args)


@pytest.mark.parametrize("accepted", [True, False])
def test_a_call_in_place_is_kept_whole_as_what_it_becomes(accepted: bool) -> None:
    """Who chooses among calls is asked about that: no backend computes the one in place."""

    class Activation(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.nn.functional.hardswish(x + 1, inplace=True)

    whole, asked = torch.ops.aten.hardswish.default, []

    def accepts(node: torch.fx.Node) -> bool:
        asked.append(node.target)
        return accepted

    made = functionalize(torch.export.export(Activation(), (torch.randn(3),)), {whole: accepts})
    assert whole in asked and (whole in {node.target for node in made.graph.nodes}) == accepted
    made.graph.lint()
