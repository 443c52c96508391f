"""Calls of random programs, with fields: `grammar.py` says what each field stands for, and fills them in."""

from __future__ import annotations

from typing import Final

__all__ = [
    "BODIES",
    "BODY",
    "BUFFERS",
    "CONTINUOUS",
    "ELEMENTWISE",
    "INDEXING",
    "PRODUCTS",
    "REDUCTIONS",
    "SHAPES",
    "STATES",
    "VIEWS",
    "WRITES",
]

ELEMENTWISE: Final = (
    *("{a} + {b}", "{a} - {b}", "{a} * {b}", "{a} / {b}", "torch.maximum({a}, {b})", "torch.minimum({a}, {b})"),
    *("{a} + {number}", "{number} - {a}", "{a} * {number}", "{a} / {number}", "torch.add({a}, {b}, alpha=2)"),
    *("{a} > {b}", "{a} == {b}", "{a} <= {number}", "{a} != {number}", "torch.where({m}, {a}, {b})"),
    *("torch.where({m}, {a}, {number})", "{a} & {b}", "{m} | {m2}", "{i} ^ {i2}", "~{m}", "torch.logical_not({a})"),
    *("-{a}", "{a}.abs()", "{a}.relu()", "{a}.sign()", "{f}.floor()", "{f}.round()", "{f}.trunc()", "{f}.frac()"),
    *("{f}.sin()", "{f}.tanh()", "{f}.sigmoid()", "{f}.clamp(-4, 4).exp()", "{f}.abs().sqrt()", "{a}.square()"),
    *("torch.log1p({f}.abs())", "torch.erf({f})", "torch.rsqrt({f}.abs() + 1)", "torch.atan2({f}, {f2})"),
    *("F.gelu({f})", "F.silu({f})", "F.elu({f})", "F.leaky_relu({f}, 0.2)", "F.softplus({f})", "F.hardswish({f})"),
    *("F.relu6({f})", "F.hardsigmoid({f})", "F.mish({f})", "{a}.clamp({low}, {high})", "{a}.clamp(min={b})"),
    *("torch.floor_divide({a}, {divisor})", "{a} % {divisor}", "torch.fmod({a}, {divisor})", "{i} << 1", "{i} >> 1"),
    *(
        "torch.div({a}, {divisor}, rounding_mode='trunc')",
        "torch.lerp({f}, {f2}, 0.25)",
        "torch.addcmul({a}, {b}, {c})",
    ),
    *(
        "{a}.pow(2)",
        "{f}.abs().pow(0.5)",
        "torch.isnan({f})",
        "{a}.masked_fill({m}, {number})",
        "torch.hypot({f}, {f2})",
    ),
    *(
        "{a}.to(torch.{dtype})",
        "{a}.bool()",
        "{a}.float()",
        "{a}.type_as({b})",
        "{f}.clamp(-99, 99).to(torch.{integer})",
    ),
    *("torch.rsub({a}, {b})", "torch.heaviside({f}, {f2})", "torch.copysign({f}, {f2})", "{a}.nan_to_num(0.5)"),
)
VIEWS: Final = (
    *(
        "{a}.view({shape})",
        "{a}.reshape({shape})",
        "{a}.permute({order})",
        "{a}.transpose({dim}, {dim2})",
        "{a}[{index}]",
    ),
    *("{a}.unsqueeze({dim})", "{a}.squeeze()", "{a}.flatten()", "{a}.select({dim}, 0)", "{a}.select({dim}, -1)"),
    *("{a}.narrow({dim}, 1, 2)", "{a}.expand(2, *{a}.shape)", "{a}.unsqueeze({dim}).expand_as({b})", "{a}.mT"),
    *("{a}.unflatten({dim}, (2, -1))", "{a}.chunk(2, {dim})[1]", "{a}.split(2, {dim})[0]", "{a}.diagonal()", "{a}.t()"),
    *(
        "{a}.unfold({dim}, 2, 1)",
        "{a}.movedim({dim}, 0)",
        "{a}.expand_as({b})",
        "{a}.unbind({dim})[0]",
        "{a}.view_as({b})",
    ),
    *("{a}.detach()", "{a}.clone()", "{a}.contiguous()", "{d}.as_strided((2, 2), (1, 2))", "{a}.swapaxes(0, {dim})"),
)
SHAPES: Final = (
    *("torch.cat([{a}, {b}], {dim})", "torch.stack([{a}, {b}], {dim})", "{a}.flip({dim})", "{a}.roll(1, {dim})"),
    *(
        "{a}.repeat(2, *[1] * {a}.dim())",
        "{a}.repeat_interleave(2, {dim})",
        "F.pad({a}, (1, 0))",
        "F.pad({a}, (-1, 2))",
    ),
    *(
        "{a}.tril()",
        "{a}.triu(1)",
        "torch.tile({a}, (2,))",
        "F.pad({a}, (1, 1), value=2)",
        "torch.broadcast_to({a}, {b}.shape)",
    ),
    *("torch.zeros_like({a})", "torch.full_like({a}, 2)", "torch.ones({a}.shape[0])", "torch.arange({a}.shape[-1])"),
    *("torch.tensor([1.0, -2.0, 0.5])", "torch.arange(4, dtype=torch.{dtype})", "{a}.new_zeros({a}.shape)"),
)
REDUCTIONS: Final = (
    *(
        "{a}.sum()",
        "{a}.sum({dim})",
        "{a}.sum({dim}, keepdim=True)",
        "{f}.mean({dim})",
        "{f}.mean({dim}, keepdim=True)",
    ),
    *(
        "{a}.amax({dim})",
        "{a}.amin({dim}, keepdim=True)",
        "{a}.max({dim}).values",
        "{a}.max({dim}).indices",
        "{a}.min()",
    ),
    *(
        "{a}.argmax({dim})",
        "{a}.argmin({dim})",
        "{a}.any({dim})",
        "{a}.all({dim})",
        "{a}.prod({dim})",
        "{f}.var({dim})",
    ),
    *("{f}.std({dim})", "{a}.cumsum({dim})", "{f}.softmax({dim})", "{f}.log_softmax({dim})", "{f}.logsumexp({dim})"),
    *("{f}.norm()", "torch.count_nonzero({a}, {dim})", "{a}.cummax({dim}).values", "{f}.sum(dtype=torch.float32)"),
    *("{a}.sum({dim}, dtype=torch.{dtype})", "{f}.std_mean({dim})[1]", "{f}.median({dim}).values", "{a}.amax()"),
)
PRODUCTS: Final = (
    *("{a} @ {b}", "{f} @ {f2}", "{a} @ {a}.mT", "{a}.mT @ {a}", "torch.einsum('...i,...j->...ij', {f}, {f2})"),
    *(
        "torch.outer({a}.flatten()[:3], {a}.flatten()[:2])",
        "F.linear({f}, {f2})",
        "torch.bmm({f}, {f2})",
        "torch.matmul({f}, {f2})",
    ),
    *(
        "F.layer_norm({f}, {f}.shape[-1:])",
        "F.normalize({f}, dim={dim})",
        "F.scaled_dot_product_attention({f}, {f}, {f})",
    ),
    *(
        "F.avg_pool1d({f}, 2)",
        "F.max_pool1d({f}, 2)",
        "F.max_pool2d({f}, 2, 1)",
        "F.interpolate({f}, scale_factor=2.0)",
    ),
    *("F.adaptive_avg_pool1d({f}, 2)", "F.one_hot({i}.clamp(0, 2).long(), 3)", "torch.cdist({f}, {f2})"),
)
INDEXING: Final = (
    *(
        "{a}.index_select({dim}, torch.tensor([1, 0, 1]))",
        "{a}[torch.tensor([0, 1])]",
        "{a}.gather({dim}, torch.zeros_like({a}, dtype=torch.int64))",
    ),
    *(
        "{a}.gather({dim}, {a}.argsort({dim}, stable=True))",
        "{a}.scatter({dim}, torch.ones_like({a}, dtype=torch.int64), {number})",
    ),
    *(
        "{a}.scatter_add({dim}, torch.zeros_like({a}, dtype=torch.int64), {a})",
        "torch.take_along_dim({a}, {a}.argmax({dim}, keepdim=True), {dim})",
    ),
    *(
        "{a}[:, torch.tensor([1, 1, 0])]",
        "{a}[{i}.long().abs().clamp(max=1)]",
        "{a}.index_add({dim}, torch.tensor([0, 1]), {b})",
    ),
    *("{a}.index_copy({dim}, torch.tensor([1, 0]), {b})", "{a}.index_fill({dim}, torch.tensor([0]), {number})"),
    *(
        "{a}.masked_scatter({m}, {b})",
        "{a}.sort({dim}).values",
        "{a}.sort({dim}, descending=True, stable=True).indices",
    ),
    *("{a}.topk(2, {dim}).values", "{a}.topk(1, {dim}, largest=False).values", "{a}.argsort({dim}, stable=True)"),
    *(
        "torch.select_scatter({a}, {b}, {dim}, 0)",
        "torch.slice_scatter({a}, {b}, {dim}, 1, 3)",
        "torch.searchsorted(torch.tensor([-1.0, 0.0, 1.0]), {f})",
    ),
    *(
        "{a}.index_put((torch.tensor([0, 1]),), {b}, accumulate=True)",
        "{a}.kthvalue(1, {dim}).values",
        "torch.bucketize({a}, torch.tensor([-1, 0, 1]))",
    ),
)
BODIES: Final = (
    *(
        "cond({f}.sum() > {number}, lambda y: {body}, lambda y: {body2}, ({f},))",
        "cond({m}.any(), lambda y: {body}, lambda y: {body2}, ({f},))",
    ),
    *(
        "cond({f}.shape[0] > 5, lambda y: {body}, lambda y: {body2}, ({f},))",
        "cond({a}.amax() > 1, lambda y, z: y + z, lambda y, z: y * z, ({a}, {a}))",
    ),
    *(
        "while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, {body}), (torch.tensor(0), {f}))[1]",
        "map_rows(lambda y: {body}, {f})",
    ),
    *(
        "scan(lambda c, y: (c + y, {body}), {f}[0].clone(), {f})[1]",
        "scan(lambda c, y: ((c + y) * 0.5, c.clone()), {f}[0].clone(), {f})[0]",
    ),
    "map_rows(lambda y: y.sum(), {f})",
)
BODY: Final = (
    *(
        "y + 1",
        "y * 2",
        "y.sin()",
        "y.relu()",
        "-y",
        "y.clone()",
        "y.flip(0)",
        "y * y.sum()",
        "y.sigmoid() + y",
        "y.cumsum(0)",
    ),
    *(
        "y.abs().sqrt()",
        "y - y.amax()",
        "torch.where(y > 0, y, 0.5)",
        "y.clone().add_(1)",
        "y.softmax(0)",
        "y.clone().mul_(2).t().t()",
    ),
)
STATES: Final = (
    ("nn.Linear({last}, 3)", "self.{s}({f})"),
    ("nn.Linear({last}, {last}, bias=False)", "self.{s}({f}).relu()"),
    ("nn.Linear({last}, {last})", "cond({f}.sum() > 0, lambda y: self.{s}(y), lambda y: {body}, ({f},))"),
    ("nn.Conv1d({channels}, 2, 3, padding=1)", "self.{s}({f})"),
    ("nn.Conv2d({channels}, 2, (1, 2))", "self.{s}({f})"),
    ("nn.Conv2d({channels}, 4, 3, padding=1)", "self.{s}({f}).relu()"),
    ("nn.ConvTranspose1d({channels}, 2, 2, stride=2)", "self.{s}({f})"),
    ("nn.LayerNorm({last})", "self.{s}({f})"),
    ("nn.BatchNorm1d({channels})", "self.{s}({f})"),
    ("nn.GroupNorm(1, {channels})", "self.{s}({f})"),
    ("nn.Embedding(5, 3)", "self.{s}({i}.long().clamp(0, 4))"),
    ("nn.Parameter(torch.randn({last}))", "{f} * self.{s}"),
    ("nn.GRU({last}, 3, batch_first=True)", "self.{s}({f})[0]"),
)
"""What `__init__` makes, and a call of it."""
BUFFERS: Final = (
    ("torch.zeros(())", "self.{s}.add_({f}.sum())"),
    ("torch.ones(3, 4)", "self.{s}.copy_(self.{s} * 0.5 + {b})"),
    ("torch.ones(3, 4)", "self.{s}[1] = {f}"),
    ("torch.arange(6)", "self.{s}.add_(1)"),
    ("torch.zeros(2, {last})", "self.{s}.select(0, 1).add_({f})"),
    ("torch.zeros(5)", "self.{s}.copy_(torch.cat([self.{s}[1:], {f}.sum().reshape(1)]))"),
    ("torch.tensor([True, False])", "self.{s}.logical_not_()"),
    ("torch.zeros(4, 3)", "self.{s}.index_put_((torch.tensor([0, 2]),), {f})"),
    ("torch.zeros(3, dtype=torch.{dtype})", "self.{s}.view(-1)[:2].add_({number})"),
)
"""What is registered, and how a call changes it."""
WRITES: Final = (
    *(
        "{v}.add_({b})",
        "{v}.mul_({b})",
        "{v}.sub_({number})",
        "{v}.mul_({number})",
        "{v}.relu_()",
        "{v}.copy_({b})",
        "{v}.neg_()",
    ),
    *(
        "{v}.zero_()",
        "{v}.fill_({number})",
        "{v}.clamp_({low}, {high})",
        "{v}.masked_fill_({m}, {number})",
        "{v}.tanh_()",
    ),
    *("{v}[{index}] = {number}", "{v}[{index}] = {b}", "{v}[{index}] += {number}", "{v}[{index}].mul_({number})"),
    *("{v}.transpose({dim}, {dim2}).add_({b})", "{v}.view(-1)[1:3].mul_({number})", "{v}.select({dim}, 0).copy_({b})"),
    *("{v}.diagonal().fill_({number})", "{v}.index_fill_({dim}, torch.tensor([0]), {number})", "{v}.cumsum_({dim})"),
    *(
        "{v}.index_put_((torch.tensor([0, 1]),), {b})",
        "{v}[{m}] = {number}",
        "{v}.t().mul_(2)",
        "{v}.narrow({dim}, 0, 2).zero_()",
    ),
    *("{v}.scatter_({dim}, torch.zeros_like({v}, dtype=torch.int64), {v} + 1)", "{v}.unsqueeze(0).squeeze().add_(1)"),
    *(
        "{v}.flatten().add_(1)",
        "{v}.unbind({dim})[1].sub_({number})",
        "{v}.chunk(2, {dim})[0].add_({b})",
        "{v}.logical_and_({b})",
    ),
    *("{v}.reshape(-1).mul_({number})", "{v}.index_add_({dim}, torch.tensor([0, 1]), {b})", "{v}.addcmul_({b}, {c})"),
)
CONTINUOUS: Final = (
    *(
        "{f} + {f2}",
        "{f} - {f2}",
        "{f} * {f2}",
        "{f}.relu()",
        "{f}.sigmoid()",
        "{f}.tanh()",
        "F.hardswish({f})",
        "F.gelu({f})",
    ),
    *(
        "{f}.softmax(-1)",
        "{f}.mean(-1, keepdim=True)",
        "{f}.mean(1)",
        "{f}.permute({order})",
        "{f}.reshape({shape})",
        "{f}[{index}]",
    ),
    *(
        "torch.cat([{f}, {f2}], {dim})",
        "F.max_pool2d({f}, 2, 1)",
        "F.avg_pool2d({f}, 2, 1)",
        "{f} @ {f2}",
        "{f}.mT @ {f2}",
    ),
    *(
        "F.layer_norm({f}, {f}.shape[-1:])",
        "{f}.amax({dim})",
        "F.pad({f}, (1, 1))",
        "{f}.flip({dim})",
        "torch.maximum({f}, {f2})",
    ),
    *(
        "{f}.unsqueeze({dim})",
        "{f}.clamp(-1, 1)",
        "-{f}",
        "{f} * 0.5",
        "{f} + 1",
        "{f}.abs()",
        "{f}.transpose({dim}, {dim2})",
    ),
    *(
        "{f}.sort({dim}).values",
        "{f}.clone().add_({f2})",
        "{f}.expand(2, *{f}.shape)",
        "F.leaky_relu({f}, 0.2)",
        "F.elu({f})",
    ),
)
"""Of quantized programs: a code that is one off moves what comes of it by little."""
