"""The values that attributes of operators may have: what is beyond them can end the process of onnxruntime, which
divides by numbers of heads and takes sizes as they come.

Every attribute of the table in `operators.py` that is an integer or a text has its values here; floats may be any.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Final

__all__ = ["DIVIDED", "allowed_integers", "allowed_texts"]

_LARGEST: Final = 2**31 - 1
_DIMS: Final = 64
"""The most dims of a tensor in torch."""


def _named(names: str, least: int, most: int) -> Iterator[tuple[str, range]]:
    return ((name, range(least, most + 1)) for name in names.split())


_INTEGERS: Final[dict[str, range]] = dict(
    chain(
        _named(
            "align_corners allowzero antialias causal ceil_mode channels_last count_include_pad detect_negative"
            " detect_positive do_rotary exclude_outside exclusive fmod input_forget interleaved inverse is_causal"
            " is_inner_broadcast is_packed_batching keepdims largest layout linear_before_reset mask_index_type"
            " noop_with_empty_axes onesided past_present_share_buffer reverse rotary_interleaved saturate"
            " scan_input_directions scan_output_directions select_last_index sliding_window_cache sorted"
            " storage_order training_mode transA transB transBatchA transBatchB unidirectional upper"
            " weight_prepacked",
            0, 1,
        ),
        _named("smooth_softmax", -1, 1),
        _named("axis axes scan_input_axes scan_output_axes start", -_DIMS, _DIMS),
        _named("end", -_LARGEST, _LARGEST),
        _named("batch_dims perm", 0, _DIMS),
        _named(
            "K N blocksize dilations group hidden_size kernel_shape kv_num_heads num_heads num_outputs num_scan_inputs"
            " output_shape q_num_heads qkv_hidden_sizes strides",
            1, _LARGEST,
        ),
        _named("RotaryEmbedding.num_heads block_size output_padding rotary_embedding_dim", 0, _LARGEST),
        _named("MatMulNBits.block_size", 16, _LARGEST),
        _named("pads", -_LARGEST, _LARGEST),
        _named("local_window_size", -1, _LARGEST),
        _named("bits", 2, 8),
        _named("kv_cache_bit_width", 0, 8),
        _named("accuracy_level", 0, 4),
        _named("qk_matmul_output_mode", -1, 3),
        _named("qk_output", 0, 2),
        _named("to", 1, 16),
        _named("output_dtype precision softmax_precision stash_type", 0, 16),
    )
)  # fmt: skip
"""By the name of an attribute, or of an operator and its attribute. Types are numbers of `TensorProto.DataType`."""

_FUSED: Final = "Relu Tanh Sigmoid LeakyRelu Clip HardSigmoid Elu Selu Softplus Softsign ThresholdedRelu"

_TEXTS: Final = {
    name: frozenset(texts.split())
    for name, texts in (
        ("activation", _FUSED),
        ("activations", "Relu Tanh Sigmoid"),
        ("approximate", "none tanh"),
        ("auto_pad", "NOTSET VALID SAME_UPPER SAME_LOWER"),
        (
            "coordinate_transformation_mode",
            "half_pixel pytorch_half_pixel half_pixel_symmetric asymmetric align_corners",
        ),
        ("direction", "forward reverse bidirectional LEFT RIGHT"),
        ("k_quant_type", "NONE PER_TENSOR PER_CHANNEL"),
        ("keep_aspect_ratio_policy", "stretch"),
        ("mode", "constant reflect edge wrap nearest linear cubic DCR CRD"),
        ("nearest_mode", "round_prefer_floor round_prefer_ceil floor ceil"),
        ("padding_mode", "zeros border reflection"),
        ("reduction", "none add mul max min"),
        ("v_quant_type", "NONE PER_TENSOR PER_CHANNEL"),
    )
}

DIVIDED: Final = (("q_num_heads", "kv_num_heads"), ("num_heads", "kv_num_heads"))
"""Attributes of which the first is a multiple of the second, where an operator has both."""


def allowed_integers(operator: str, attribute: str) -> range:
    """The integers that the attribute may be, or may hold. Raises `KeyError` for one that the table lacks."""
    own = _INTEGERS.get(f"{operator}.{attribute}")
    return _INTEGERS[attribute] if own is None else own


def allowed_texts(attribute: str) -> frozenset[str]:
    """The texts that the attribute may be, or may hold. Raises `KeyError` for one that the table lacks."""
    return _TEXTS[attribute]
