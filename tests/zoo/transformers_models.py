"""Architectures of `transformers`, a few layers each, with a width of 64 at most."""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import torch
from tests.zoo.architecture import Architecture, Example
from tests.zoo.torchvision_models import load_without_operators

__all__ = ["ARCHITECTURES"]

_WIDTHS: Final = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
}
_TEXT: Final = {**_WIDTHS, "vocab_size": 99, "max_position_embeddings": 64, "pad_token_id": 0}
_DECODER: Final = {**_TEXT, "use_cache": False, "bos_token_id": 1, "eos_token_id": 2}
_GROUPED: Final = {**_DECODER, "num_key_value_heads": 2}
_EXPERTS: Final = {**_GROUPED, "num_experts_per_tok": 2}
_IMAGES: Final = {**_WIDTHS, "image_size": 32, "patch_size": 8}


def _make(model: str, inputs: Callable[[], dict[str, torch.Tensor]], part: str, sizes: dict[str, Any]) -> Example:
    load_without_operators()  # transformers imports torchvision where it finds it
    import transformers

    found = getattr(transformers, model)
    made = found(found.config_class(**sizes)).eval()
    return operator.attrgetter(part)(made) if part else made, inputs()


def _ids(length: int = 12) -> dict[str, torch.Tensor]:
    return {"input_ids": torch.randint(3, 99, (1, length))}


def _masked_ids() -> dict[str, torch.Tensor]:
    mask = torch.ones(2, 12, dtype=torch.int64)
    mask[0, 7:] = 0
    return {"input_ids": torch.randint(3, 99, (2, 12)), "attention_mask": mask}


def _image(size: int = 32) -> dict[str, torch.Tensor]:
    return {"pixel_values": torch.randn(1, 3, size, size)}


def _spectrogram() -> dict[str, torch.Tensor]:
    return {"input_features": torch.randn(1, 16, 64)}


def _sound(samples: int = 800) -> dict[str, torch.Tensor]:
    return {"input_values": torch.randn(1, samples)}


def _image_and_ids() -> dict[str, torch.Tensor]:
    return {**_masked_ids(), **_image()}


def _steps() -> dict[str, torch.Tensor]:
    return {
        "states": torch.randn(1, 5, 7),
        "actions": torch.randn(1, 5, 3),
        "rewards": torch.randn(1, 5, 1),
        "returns_to_go": torch.randn(1, 5, 1),
        "timesteps": torch.arange(5)[None],
        "attention_mask": torch.ones(1, 5, dtype=torch.int64),
    }


def _row(
    name: str,
    model: str,
    inputs: Callable[[], dict[str, torch.Tensor]],
    sizes: dict[str, Any],
    *,
    part: str = "",
    **held_to: Any,
) -> Architecture:
    """`part` is the attribute of the model that is lowered, where it is not the whole of it."""
    return Architecture(f"transformers: {name}", partial(_make, model, inputs, part, sizes), **held_to)


_DISTILBERT = {"dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 64, "vocab_size": 99}
_DEBERTA = {**_TEXT, "relative_attention": True, "pos_att_type": ["p2c", "c2p"], "type_vocab_size": 0}
_T5 = {"d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4, "vocab_size": 99}
_BART = {
    "d_model": 32,
    "encoder_layers": 2,
    "decoder_layers": 1,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 64,
    "decoder_ffn_dim": 64,
    "vocab_size": 99,
    "max_position_embeddings": 64,
}
_WHISPER = {**_BART, "num_mel_bins": 16, "max_source_positions": 32, "max_target_positions": 16, "pad_token_id": 0}
_SPEECH = {
    **_WIDTHS,
    "conv_dim": (16, 16),
    "conv_stride": (5, 4),
    "conv_kernel": (10, 8),
    "num_conv_pos_embeddings": 8,
    "num_conv_pos_embedding_groups": 2,
    "num_feat_extract_layers": 2,
    "vocab_size": 32,
}

ARCHITECTURES: Final = [
    # encoders of text
    _row("BERT", "BertModel", _masked_ids, _TEXT),
    _row("DistilBERT", "DistilBertModel", _masked_ids, _DISTILBERT),
    _row("RoBERTa", "RobertaModel", _masked_ids, _TEXT),
    _row("ALBERT", "AlbertModel", _masked_ids, {**_TEXT, "embedding_size": 16}),
    _row("DeBERTa", "DebertaModel", _masked_ids, _DEBERTA),
    _row("DeBERTa v2", "DebertaV2Model", _masked_ids, _DEBERTA),
    _row("ELECTRA", "ElectraModel", _masked_ids, {**_TEXT, "embedding_size": 16}),
    _row("MPNet", "MPNetModel", _masked_ids, _TEXT),
    _row(
        "ModernBERT",
        "ModernBertModel",
        _masked_ids,
        {**_TEXT, "cls_token_id": 1, "sep_token_id": 2, "bos_token_id": 1, "eos_token_id": 2},
    ),
    _row("T5 encoder", "T5EncoderModel", _masked_ids, _T5),
    _row("BART encoder", "BartModel", _masked_ids, _BART, part="encoder"),
    _row("CLIP text", "CLIPTextModel", _masked_ids, {**_TEXT, "eos_token_id": 98}),
    # decoders of text
    _row(
        "GPT-2",
        "GPT2Model",
        _ids,
        {"n_embd": 32, "n_layer": 2, "n_head": 4, "vocab_size": 99, "n_positions": 64, "use_cache": False},
    ),
    _row("GPT-NeoX", "GPTNeoXModel", _ids, _DECODER),
    _row("OPT", "OPTModel", _ids, {**_DECODER, "ffn_dim": 64, "word_embed_proj_dim": 32}),
    _row(
        "BLOOM",
        "BloomModel",
        _ids,
        {"hidden_size": 32, "n_layer": 2, "n_head": 4, "vocab_size": 99, "use_cache": False},
    ),
    _row("Falcon", "FalconModel", _ids, _DECODER),
    _row("Llama", "LlamaForCausalLM", _ids, _GROUPED, quick=True),
    _row("Mistral", "MistralForCausalLM", _ids, {**_GROUPED, "sliding_window": 8}),
    _row("Qwen2", "Qwen2ForCausalLM", _ids, _GROUPED),
    _row("Qwen3", "Qwen3ForCausalLM", _ids, {**_GROUPED, "head_dim": 8}),
    _row("Gemma", "GemmaForCausalLM", _ids, {**_GROUPED, "head_dim": 8}),
    _row("Gemma 2", "Gemma2ForCausalLM", _ids, {**_GROUPED, "head_dim": 8, "sliding_window": 8}),
    _row("Phi", "PhiForCausalLM", _ids, _DECODER),
    _row("Phi-3", "Phi3ForCausalLM", _ids, _GROUPED, delegates=3, leftovers=8),
    _row("Granite", "GraniteForCausalLM", _ids, _GROUPED),
    _row("SmolLM3", "SmolLM3ForCausalLM", _ids, _GROUPED),
    # mixtures of experts
    _row(
        "Mixtral",
        "MixtralForCausalLM",
        _ids,
        {**_EXPERTS, "num_local_experts": 4},
        quick=True,
        delegates=7,
        leftovers=12,
    ),
    _row(
        "Qwen3-MoE",
        "Qwen3MoeForCausalLM",
        _ids,
        {**_EXPERTS, "num_experts": 4, "moe_intermediate_size": 16, "head_dim": 8},
        delegates=7,
        leftovers=12,
    ),
    _row("Granite-MoE", "GraniteMoeForCausalLM", _ids, {**_EXPERTS, "num_local_experts": 4}, delegates=7, leftovers=12),
    _row(
        "GPT-OSS",
        "GptOssForCausalLM",
        _ids,
        {**_EXPERTS, "num_local_experts": 4, "head_dim": 8, "sliding_window": 8},
        delegates=7,
        leftovers=8,
    ),
    _row(
        "DeepSeek-V3",
        "DeepseekV3ForCausalLM",
        _ids,
        {
            **_EXPERTS,
            "num_key_value_heads": 4,
            "n_routed_experts": 4,
            "n_group": 2,
            "topk_group": 1,
            "moe_intermediate_size": 16,
            "kv_lora_rank": 8,
            "q_lora_rank": 8,
            "qk_rope_head_dim": 4,
            "qk_nope_head_dim": 4,
            "v_head_dim": 8,
            "first_k_dense_replace": 1,
        },
        delegates=4,
        leftovers=8,
    ),
    # recurrent
    _row(
        "Mamba",
        "MambaModel",
        _ids,
        {"hidden_size": 32, "num_hidden_layers": 2, "state_size": 4, "vocab_size": 99, "use_cache": False},
    ),
    _row(
        "RWKV",
        "RwkvModel",
        _ids,
        {
            "hidden_size": 32,
            "num_hidden_layers": 2,
            "attention_hidden_size": 32,
            "intermediate_size": 64,
            "vocab_size": 99,
            "context_length": 32,
            "use_cache": False,
        },
    ),
    # sound
    _row("Whisper encoder", "WhisperModel", _spectrogram, _WHISPER, part="encoder", quick=True),
    _row("Wav2Vec2", "Wav2Vec2Model", _sound, _SPEECH, quick=True),
    _row("HuBERT", "HubertModel", _sound, _SPEECH),
    _row(
        "Moonshine encoder",
        "MoonshineModel",
        lambda: _sound(4000),
        {
            **_WIDTHS,
            "encoder_num_hidden_layers": 2,
            "decoder_num_hidden_layers": 1,
            "encoder_num_attention_heads": 4,
            "decoder_num_attention_heads": 4,
            "vocab_size": 99,
        },
        part="encoder",
        delegates=3,
        leftovers=8,
    ),
    _row(
        "VITS",
        "VitsModel",
        _ids,
        {
            **_WIDTHS,
            "vocab_size": 99,
            "flow_size": 16,
            "spectrogram_bins": 9,
            "ffn_dim": 32,
            "upsample_initial_channel": 16,
            "upsample_rates": [4, 4],
            "upsample_kernel_sizes": [8, 8],
            "resblock_kernel_sizes": [3],
            "resblock_dilation_sizes": [[1, 3]],
            "prior_encoder_num_flows": 2,
            "prior_encoder_num_wavenet_layers": 2,
            "posterior_encoder_num_wavenet_layers": 2,
            "duration_predictor_num_flows": 2,
            "use_stochastic_duration_prediction": False,
            "noise_scale": 0.0,
        },
        delegates=2,
        leftovers=1,  # the noise
        bounds={"modeling_vits.py:1351": 256},  # the largest of predicted_lengths
    ),
    # images
    _row("ViT", "ViTModel", _image, _IMAGES),
    _row("DeiT", "DeiTModel", _image, _IMAGES),
    _row("BEiT", "BeitModel", _image, {**_IMAGES, "use_relative_position_bias": True}, delegates=3, leftovers=4),
    _row("DINOv2", "Dinov2Model", _image, _IMAGES),
    _row(
        "Swin",
        "SwinModel",
        _image,
        {"image_size": 32, "patch_size": 2, "embed_dim": 16, "depths": [2, 2], "num_heads": [2, 4], "window_size": 4},
    ),
    _row(
        "Swin v2",
        "Swinv2Model",
        _image,
        {"image_size": 32, "patch_size": 2, "embed_dim": 16, "depths": [2, 2], "num_heads": [2, 4], "window_size": 4},
    ),
    _row("ConvNeXt", "ConvNextModel", _image, {"hidden_sizes": [8, 16, 32, 64], "depths": [1, 1, 2, 1]}),
    _row(
        "MobileViT",
        "MobileViTModel",
        lambda: _image(64),
        {
            "image_size": 64,
            "hidden_sizes": [16, 24, 32],
            "neck_hidden_sizes": [8, 8, 16, 16, 24, 32, 64],
            "num_attention_heads": 4,
            "initializer_range": 0.3,
        },
    ),
    _row(
        "SegFormer",
        "SegformerForSemanticSegmentation",
        lambda: _image(64),
        {
            "hidden_sizes": [16, 16, 32, 32],
            "depths": [1, 1, 1, 1],
            "num_attention_heads": [1, 1, 2, 2],
            "decoder_hidden_size": 16,
            "initializer_range": 0.3,
        },
    ),
    _row("YOLOS", "YolosForObjectDetection", _image, {**_IMAGES, "image_size": [32, 32], "num_detection_tokens": 5}),
    _row(
        "SuperPoint",
        "SuperPointForKeypointDetection",
        lambda: _image(64),
        {
            "encoder_hidden_sizes": [8, 8, 16, 16],
            "decoder_hidden_size": 16,
            "keypoint_decoder_dim": 65,
            "descriptor_decoder_dim": 16,
        },
        delegates=5,
        leftovers=7,
    ),
    _row("CLIP vision", "CLIPVisionModel", _image, _IMAGES, quick=True),
    # both, and others
    _row(
        "CLIP",
        "CLIPModel",
        _image_and_ids,
        {"text_config": {**_TEXT, "eos_token_id": 98}, "vision_config": _IMAGES, "projection_dim": 16},
    ),
    _row("SigLIP vision", "SiglipVisionModel", _image, _IMAGES),
    _row(
        "Decision Transformer",
        "DecisionTransformerModel",
        _steps,
        {"state_dim": 7, "act_dim": 3, "hidden_size": 32, "n_layer": 2, "n_head": 4, "max_ep_len": 16},
        delegates=3,
        leftovers=4,
    ),
    _row(
        "PatchTST",
        "PatchTSTModel",
        lambda: {"past_values": torch.randn(1, 32, 3)},
        {
            "num_input_channels": 3,
            "context_length": 32,
            "patch_length": 8,
            "patch_stride": 8,
            "d_model": 32,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "ffn_dim": 64,
        },
        delegates=2,
        leftovers=1,
    ),
]
