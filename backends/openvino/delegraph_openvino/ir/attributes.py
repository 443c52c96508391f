"""The values of attributes in an IR: text of one form for each kind, within what OpenVINO's operations can be.

Counts and steps are at least 1: OpenVINO divides by them. Floats may be any.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from delegraph_openvino.blob import ELEMENT_TYPES

__all__ = ["is_size", "is_value"]

_LARGEST: Final = 2**31 - 1
_MOST_DIMS: Final = 64
_INTEGER: Final = "-?(?:0|[1-9][0-9]{0,9})"
_FLOAT: Final = r"[-+]?(?:inf|nan|[0-9]+(?:\.[0-9]*)?(?:e[-+]?[0-9]+)?)"
_SIZE: Final = r"(?:\?|-1|(?:0|[1-9][0-9]{0,18})(?:\.\.(?:[1-9][0-9]{0,18})?)?|\.\.[1-9][0-9]{0,18})"


def _list(item: str) -> str:
    return f"(?:{item}(?:, ?{item})*)?"


_FORMS: Final = {
    "bool": re.compile("true|false"),
    "int": re.compile(_INTEGER),
    "ints": re.compile(_list(_INTEGER)),
    "float": re.compile(_FLOAT),
    "floats": re.compile(_list(_FLOAT)),
    "shape": re.compile(_list(_SIZE)),
    "text": re.compile("[A-Za-z0-9_.,>-]*"),
    "texts": re.compile(_list("[a-z]+")),
    "type": re.compile("|".join({*ELEMENT_TYPES.values(), "u64", "f64", "dynamic"})),
}

_RANGES: Final = {
    name: range(least, _LARGEST + 1)
    for names, least in (
        ("block_size dilations group hidden_size kernel num_groups num_splits pooled_h pooled_w", 1),
        ("rates sizes strides", 1),
        ("levels", 2),
        ("batch_dims output_padding sampling_ratio size", 0),
        ("pads_begin pads_end", -_LARGEST),
    )
    for name in names.split()
} | {
    name: range(-_MOST_DIMS, _MOST_DIMS + 1)
    for name in ("axes", "axis", "batch_axis", "seq_axis", "reduction_axes")
} | {
    name: range(2)
    for name in ("begin_mask", "end_mask", "new_axis_mask", "shrink_axis_mask", "ellipsis_mask")
}  # fmt: skip

_TEXTS: Final = {
    name: frozenset(texts.split())
    for name, texts in (
        ("activations", "sigmoid tanh relu"),
        ("aligned_mode", "asymmetric half_pixel half_pixel_for_nn"),
        ("approximation_mode", "ERF TANH"),
        ("auto_broadcast", "numpy none"),
        ("auto_pad", "explicit valid same_upper same_lower"),
        (
            "coordinate_transformation_mode",
            "half_pixel pytorch_half_pixel asymmetric align_corners tf_half_pixel_for_nn",
        ),
        ("direction", "forward reverse bidirectional"),
        ("eps_mode", "INSIDE_SQRT OUTSIDE_SQRT add max"),
        ("method", "max bilinear"),
        (
            "mode",
            "numpy bidirectional explicit nearest linear linear_onnx cubic bilinear bicubic"
            " bilinear_pillow bicubic_pillow blocks_first depth_first half_to_even half_away_from_zero"
            " max min avg index mask",
        ),
        ("nearest_mode", "round_prefer_floor round_prefer_ceil floor ceil simple"),
        ("negative_indices_mode", "ignore_negative normalize"),
        ("pad_mode", "constant edge reflect symmetric"),
        ("padding_mode", "zeros border reflection"),
        ("reduction", "none sum sub prod min max mean"),
        ("rounding_type", "floor ceil ceil_torch"),
        ("shape_calculation_mode", "sizes scales"),
        ("sort", "none index value"),
        ("weights_format", "ifco fico fcio icof iofc"),
    )
}
"""Texts by the name of the attribute; `equation` is any of letters."""


def is_value(name: str, kind: str, text: str) -> bool:
    """Whether the attribute `name`, of a `kind` as in `operations.py`, may be `text`."""
    if _FORMS[kind].fullmatch(text) is None:
        return False
    if kind in ("int", "ints") and name in _RANGES:
        return all(int(number) in _RANGES[name] for number in _items(text))
    if kind in ("text", "texts"):
        return name == "equation" or all(item in _TEXTS.get(name, ()) for item in _items(text))
    return True


def is_size(text: str) -> bool:
    """Whether `text` is the size of a dim, -1 for a dynamic one."""
    return (text.isdecimal() and text.isascii()) or text == "-1"


def _items(text: str) -> Iterable[str]:
    return (item.strip() for item in text.split(",")) if text else ()
