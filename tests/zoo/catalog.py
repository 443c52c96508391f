"""Every architecture of transformers, timm and torchvision, made small by rule -> rows as the zoo's.

The zoo's own rows are written by hand and held to a result. These are not: a rule sets the sizes that a configuration
has by their usual names, and what then cannot be made or exported is no row of `coverage.py`'s count.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, Final

import torch
from tests.zoo.architecture import Architecture, Example
from tests.zoo.torchvision_models import load_without_operators

__all__ = ["catalog"]

_BY_SIZE: Final[Mapping[Any, str]] = {
    1: "n_group topk_group first_k_dense_replace bos_token_id",
    2: """num_hidden_layers num_layers n_layer n_layers encoder_layers decoder_layers encoder_num_hidden_layers depth
        decoder_num_hidden_layers num_encoder_layers num_decoder_layers num_key_value_heads
        multi_query_group_num
        num_experts_per_tok moe_topk num_conv_pos_embedding_groups num_feat_extract_layers eos_token_id""",
    4: """num_attention_heads num_heads n_head n_heads encoder_attention_heads decoder_attention_heads state_size
        d_state encoder_num_attention_heads decoder_num_attention_heads num_experts num_local_experts n_routed_experts
        moe_num_experts""",
    6: "num_queries",
    8: """head_dim d_kv kv_lora_rank q_lora_rank qk_rope_head_dim qk_nope_head_dim v_head_dim patch_size sliding_window
        num_conv_pos_embeddings""",
    16: "embedding_size num_mel_bins max_target_positions projection_dim",
    32: """hidden_size d_model n_embd dim embed_dim encoder_hidden_size attention_hidden_size feed_forward_hidden_size
        moe_intermediate_size shared_expert_intermediate_size image_size max_source_positions word_embed_proj_dim""",
    64: """intermediate_size ffn_dim encoder_ffn_dim decoder_ffn_dim d_ff hidden_dim n_inner max_position_embeddings
        n_positions n_ctx context_length""",
    99: "vocab_size hidden_size_per_layer_input",
    (5, 4): "conv_stride",
    (10, 8): "conv_kernel",
    (16, 16): "conv_dim",
}
_SIZES: Final = {"pad_token_id": 0} | {name: size for size, names in _BY_SIZE.items() for name in names.split()}

_LARGEST: Final = 60_000_000
"""Parameters; the smallest of some families of timm has as many."""

_ONE_OF_MANY: Final = frozenset({"timm_backbone", "timm_wrapper"})
"""Model types that stand for models of elsewhere."""


def catalog() -> Iterator[Architecture]:
    """All rows, by library; makes no model."""
    load_without_operators()
    import timm
    import torchvision
    from transformers.models.auto.modeling_auto import MODEL_MAPPING_NAMES

    for kind in MODEL_MAPPING_NAMES:
        if kind not in _ONE_OF_MANY:
            yield Architecture(f"transformers: {kind}", partial(_transformer, kind))
    for module in timm.list_modules():
        names = sorted(timm.list_models(module=module), key=lambda name: (not _small(name), len(name), name))
        if names:
            yield Architecture(f"timm: {names[0]}", partial(_timm, names[0]))
    for name in torchvision.models.list_models(module=torchvision.models):
        yield Architecture(f"torchvision: {name}", partial(_torchvision, name))
    for module in (torchvision.models.segmentation, torchvision.models.video):
        for name in torchvision.models.list_models(module=module):
            yield Architecture(f"torchvision: {name}", partial(_torchvision, name))


def _small(name: str) -> bool:
    return any(word in name for word in ("tiny", "nano", "atto", "small", "_xxs", "_s0", "_b0", "_m0", "_t0", "18"))


def _torchvision(name: str) -> Example:
    import torchvision

    made = torchvision.models.get_model(name, weights=None, **_weights_backbone(name)).eval()
    video = any(word in name for word in ("r3d", "mc3", "r2plus1d", "mvit", "s3d", "swin3d"))
    return made, {"x": torch.randn(1, 3, 16, 112, 112) if video else torch.randn(1, 3, _side(name), _side(name))}


def _weights_backbone(name: str) -> dict[str, Any]:
    return {"weights_backbone": None} if any(w in name for w in ("deeplab", "fcn", "lraspp")) else {}


def _side(name: str) -> int:
    return 224 if any(word in name for word in ("maxvit", "vit_")) else 96


def _timm(name: str) -> Example:
    import timm

    made = _not_large(lambda: timm.create_model(name, num_classes=10)).eval()
    return made, {"x": torch.randn(1, *made.default_cfg.get("input_size", (3, 224, 224)))}


# ---- transformers -------------------------------------------------------------------------------------------------


def _transformer(kind: str) -> Example:
    import transformers
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    config = _shrunk(CONFIG_MAPPING[kind])
    config.use_cache = False
    model = _not_large(lambda: transformers.AutoModel.from_config(config)).eval()
    return model, _inputs(model, config)


def _not_large(make: Callable[[], torch.nn.Module]) -> torch.nn.Module:
    """What `make` makes. Raises `ValueError` if the rule has not made it small, before memory is taken for it."""
    with torch.device("meta"):
        size = sum(parameter.numel() for parameter in make().parameters())
    if size > _LARGEST:
        raise ValueError(f"{size:,} parameters")
    return make()


def _shrunk(config_class: Any) -> Any:
    """The configuration with the sizes that it has by a usual name, those of its parts as well."""
    known = vars(config_class())
    return config_class(**_shrunk_sizes(config_class, known))


def _shrunk_sizes(config_class: Any, known: Mapping[str, Any]) -> dict[str, Any]:
    parts = {
        name: _shrunk_sizes(part, vars(part())) for name, part in config_class.sub_configs.items() if callable(part)
        and name in known and getattr(part, "model_type", "")
    }  # fmt: skip
    sizes = {name: _like(value, known[name]) for name, value in _SIZES.items() if name in known}
    renamed = {old: _SIZES[new] for new, old in config_class.attribute_map.items() if new in _SIZES and old in known}
    return {**renamed, **sizes, **parts}


def _like(value: Any, before: Any) -> Any:
    """A size of each side where the configuration has them."""
    return [value] * len(before) if isinstance(before, list | tuple) and isinstance(value, int) else value


def _inputs(model: Any, config: Any) -> dict[str, torch.Tensor]:
    import inspect

    parameters = inspect.signature(model.forward).parameters
    text = getattr(config, "text_config", config)
    made: dict[str, Callable[[], torch.Tensor]] = {
        "input_ids": lambda: torch.randint(3, min(99, getattr(text, "vocab_size", 99)), (1, 12)),
        "decoder_input_ids": lambda: torch.randint(3, 99, (1, 4)),
        "pixel_values": lambda: torch.randn(1, getattr(config, "num_channels", 3), *_image_size(config)),
        "input_features": lambda: torch.randn(1, getattr(config, "num_mel_bins", 16), 64),
        "input_values": lambda: torch.randn(1, 800),
        "past_values": lambda: torch.randn(1, getattr(config, "context_length", 64), 1),
    }
    wanted = [model.main_input_name]
    if config.is_encoder_decoder and "decoder_input_ids" in parameters:
        wanted.append("decoder_input_ids")
    if "pixel_values" in parameters and "input_ids" in parameters and "clip" in config.model_type:
        wanted = ["input_ids", "pixel_values"]
    return {name: made[name]() for name in wanted if name in parameters}


def _image_size(config: Any) -> tuple[int, int]:
    size = getattr(getattr(config, "vision_config", config), "image_size", None) or 64
    return tuple(size) if isinstance(size, list | tuple) else (size, size)
