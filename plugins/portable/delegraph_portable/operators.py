"""Modules -> their operators. `pytest tests/kernels/test_module_tables.py --renew` writes it."""

from __future__ import annotations

from typing import Final

__all__ = ["OPERATORS"]

_TABLE: Final = {
    "delegraph_portable.convolution.backward": "aten::convolution_backward.out",
    "delegraph_portable.convolution.forward": "aten::_convolution.out aten::convolution.out",
    "delegraph_portable.convolution.patches": "aten::col2im.out aten::im2col.out",
    "delegraph_portable.copies.conversions": (
        "aten::_to_copy.out aten::clone.out aten::copy.out aten::copy_ dim_order_ops::_clone_dim_order.out "
        "dim_order_ops::_empty_dim_order.out dim_order_ops::_to_dim_order_copy.out"
    ),
    "delegraph_portable.copies.joining": (
        "aten::cat.out aten::flip.out aten::repeat.out aten::roll.out aten::split_copy.Tensor_out "
        "aten::split_with_sizes_copy.out aten::stack.out aten::unbind_copy.int_out"
    ),
    "delegraph_portable.copies.views": (
        "aten::alias_copy.out aten::as_strided_copy.out aten::detach_copy.out aten::diagonal_copy.out "
        "aten::expand_copy.out aten::lift.out aten::lift_fresh_copy.out aten::narrow_copy.out aten::permute_copy.out "
        "aten::select_copy.int_out aten::slice_copy.Tensor_out aten::squeeze_copy.dim_out aten::squeeze_copy.dims_out "
        "aten::t_copy.out aten::transpose_copy.int_out aten::unfold_copy.out aten::unsqueeze_copy.out "
        "aten::view_as_complex_copy.out aten::view_as_real_copy.out aten::view_copy.dtype_out aten::view_copy.out"
    ),
    "delegraph_portable.creation.factories": (
        "aten::arange.out aten::arange.start_out aten::empty.out aten::empty_permuted.out aten::empty_strided.out "
        "aten::fill.Scalar_out aten::fill.Tensor_out aten::full.out aten::full_like.out aten::new_empty_strided.out "
        "aten::ones.out aten::scalar_tensor.out aten::tril_indices.out aten::triu_indices.out aten::zeros.out"
    ),
    "delegraph_portable.creation.random": (
        "aten::bernoulli.Tensor_out aten::bernoulli.float_out aten::bernoulli.out aten::cauchy.out "
        "aten::exponential.out aten::geometric.out aten::log_normal.out aten::multinomial.out aten::native_dropout.out "
        "aten::normal.Tensor_Tensor_out aten::normal.Tensor_float_out aten::normal.float_Tensor_out "
        "aten::normal.float_float_out aten::poisson.out aten::rand.generator_out aten::rand.out "
        "aten::rand_like.generator_out aten::rand_like.out aten::randint.generator_out aten::randint.low_generator_out "
        "aten::randint.low_out aten::randint.out aten::randint_like.Tensor_generator_out aten::randint_like.Tensor_out "
        "aten::randint_like.generator_out aten::randint_like.low_dtype_out aten::randint_like.low_generator_dtype_out "
        "aten::randint_like.out aten::randn.generator_out aten::randn.out aten::randn_like.generator_out "
        "aten::randn_like.out aten::randperm.generator_out aten::randperm.out aten::uniform.out"
    ),
    "delegraph_portable.fourier": "aten::_fft_c2c.out aten::_fft_c2r.out aten::_fft_r2c.out",
    "delegraph_portable.images.grid_sampling": "aten::grid_sampler_2d.out aten::grid_sampler_3d.out",
    "delegraph_portable.images.padding": (
        "aten::constant_pad_nd.out aten::reflection_pad1d.out aten::reflection_pad2d.out aten::reflection_pad3d.out "
        "aten::replication_pad1d.out aten::replication_pad2d.out aten::replication_pad3d.out"
    ),
    "delegraph_portable.images.pixel_shuffle": "aten::pixel_shuffle.out aten::pixel_unshuffle.out",
    "delegraph_portable.images.upsampling": (
        "aten::_upsample_bicubic2d_aa.out aten::_upsample_bilinear2d_aa.out aten::_upsample_lanczos2d_aa.out "
        "aten::_upsample_nearest_exact1d.out aten::_upsample_nearest_exact2d.out aten::_upsample_nearest_exact3d.out "
        "aten::upsample_bicubic2d.out aten::upsample_bilinear2d.out aten::upsample_bilinear2d.vec_out "
        "aten::upsample_linear1d.out aten::upsample_nearest1d.out aten::upsample_nearest2d.out "
        "aten::upsample_nearest2d.vec_out aten::upsample_nearest3d.out aten::upsample_trilinear3d.out"
    ),
    "delegraph_portable.indexing.embedding_bag": (
        "aten::_embedding_bag.out aten::_embedding_bag_forward_only.out aten::embedding_dense_backward.out "
        "aten::embedding_renorm.out"
    ),
    "delegraph_portable.indexing.reading": (
        "aten::embedding.out aten::gather.out aten::index.Tensor_out aten::index_select.out aten::masked_select.out "
        "aten::nonzero.out aten::nonzero_static.out aten::repeat_interleave.Tensor_out"
    ),
    "delegraph_portable.indexing.scattering": (
        "aten::index_reduce.out aten::scatter.reduce_out aten::scatter.src_out aten::scatter.value_out "
        "aten::scatter.value_reduce_out aten::scatter_add.out aten::scatter_reduce.two_out"
    ),
    "delegraph_portable.indexing.segments": "aten::segment_reduce.out",
    "delegraph_portable.indexing.writing": (
        "aten::as_strided_scatter.out aten::diagonal_scatter.out aten::index_put.out aten::index_put_ "
        "aten::masked_scatter.out aten::put.out aten::select_scatter.out aten::slice_scatter.out"
    ),
    "delegraph_portable.llm.attention": (
        "llama::custom_quantized_sdpa.out llama::custom_sdpa.out llama::sdpa_with_kv_cache.out"
    ),
    "delegraph_portable.llm.cache": "llama::update_cache.out llama::update_cache_with_indices.out",
    "delegraph_portable.llm.hadamard": "llama::fast_hadamard_transform.out",
    "delegraph_portable.matmul.attention": (
        "aten::_native_multi_head_attention.out aten::_transformer_encoder_layer_fwd.out"
    ),
    "delegraph_portable.matmul.grouped": "transformers::grouped_mm_fallback.out",
    "delegraph_portable.matmul.products": (
        "aten::_addmm_activation.out aten::_int_mm.out aten::addbmm.out aten::addmm.dtype_out aten::addmm.out "
        "aten::addmv.out aten::baddbmm.out aten::bmm.dtype_out aten::bmm.out aten::linear.out aten::mm.dtype_out "
        "aten::mm.out"
    ),
    "delegraph_portable.normalization.backward": (
        "aten::native_group_norm_backward.out aten::native_layer_norm_backward.out"
    ),
    "delegraph_portable.normalization.forward": (
        "aten::_batch_norm_no_update.out aten::_native_batch_norm_legit.no_stats_out "
        "aten::_native_batch_norm_legit.out aten::_native_batch_norm_legit_no_training.out aten::native_group_norm.out "
        "aten::native_layer_norm.out"
    ),
    "delegraph_portable.pointwise.activations": (
        "aten::_log_softmax.out aten::_softmax.out aten::elu.out aten::gelu.out aten::glu.out aten::hardtanh.out "
        "aten::leaky_relu.out aten::logit.out aten::relu.out"
    ),
    "delegraph_portable.pointwise.arithmetic": (
        "aten::_add_relu.Scalar_out aten::_add_relu.out aten::_masked_scale.out aten::add.Scalar_out aten::add.out "
        "aten::atan2.out aten::clamp.Tensor_out aten::clamp.out aten::complex.out aten::copysign.Scalar_out "
        "aten::copysign.out aten::div.Scalar_mode_out aten::div.Scalar_out aten::div.out aten::div.out_mode "
        "aten::floor_divide.out aten::fmax.out aten::fmin.out aten::fmod.Scalar_out aten::fmod.Tensor_out "
        "aten::gcd.out aten::hypot.out aten::lcm.out aten::ldexp.out aten::maximum.out aten::minimum.out "
        "aten::mul.Scalar_out aten::mul.out aten::nextafter.out aten::polar.out aten::remainder.Scalar_Tensor_out "
        "aten::remainder.Scalar_out aten::remainder.Tensor_out aten::rsub.Scalar_out aten::sub.Scalar_out "
        "aten::sub.out"
    ),
    "delegraph_portable.pointwise.comparison": (
        "aten::__lshift__.Scalar_out aten::__lshift__.Tensor_out aten::__rshift__.Scalar_out "
        "aten::__rshift__.Tensor_out aten::bitwise_and.Scalar_Tensor_out aten::bitwise_and.Scalar_out "
        "aten::bitwise_and.Tensor_out aten::bitwise_left_shift.Scalar_Tensor_out "
        "aten::bitwise_left_shift.Tensor_Scalar_out aten::bitwise_left_shift.Tensor_out "
        "aten::bitwise_or.Scalar_Tensor_out aten::bitwise_or.Scalar_out aten::bitwise_or.Tensor_out "
        "aten::bitwise_right_shift.Scalar_Tensor_out aten::bitwise_right_shift.Tensor_Scalar_out "
        "aten::bitwise_right_shift.Tensor_out aten::bitwise_xor.Scalar_Tensor_out aten::bitwise_xor.Scalar_out "
        "aten::bitwise_xor.Tensor_out aten::eq.Scalar_out aten::eq.Tensor_out aten::ge.Scalar_out aten::ge.Tensor_out "
        "aten::gt.Scalar_out aten::gt.Tensor_out aten::le.Scalar_out aten::le.Tensor_out aten::logical_and.out "
        "aten::logical_or.out aten::logical_xor.out aten::lt.Scalar_out aten::lt.Tensor_out "
        "aten::masked_fill.Scalar_out aten::ne.Scalar_out aten::ne.Tensor_out aten::tril.out aten::where.self_out"
    ),
    "delegraph_portable.pointwise.powers": (
        "aten::pow.Scalar_out aten::pow.Tensor_Scalar_out aten::pow.Tensor_Tensor_out"
    ),
    "delegraph_portable.pointwise.unary": (
        "aten::_conj_physical.out aten::abs.out aten::acos.out aten::acosh.out aten::angle.out aten::asin.out "
        "aten::asinh.out aten::atan.out aten::atanh.out aten::bitwise_not.out aten::ceil.out aten::cos.out "
        "aten::cosh.out aten::erf.out aten::exp.out aten::exp2.out aten::expm1.out aten::floor.out "
        "aten::frexp.Tensor_out aten::isinf.out aten::isnan.out aten::log.out aten::log10.out aten::log1p.out "
        "aten::log2.out aten::logical_not.out aten::neg.out aten::reciprocal.out aten::round.decimals_out "
        "aten::round.out aten::rsqrt.out aten::sigmoid.out aten::sign.out aten::signbit.out aten::sin.out "
        "aten::sinh.out aten::sqrt.out aten::tan.out aten::tanh.out aten::trunc.out"
    ),
    "delegraph_portable.pooling.adaptive": (
        "aten::_adaptive_avg_pool2d.out aten::_adaptive_avg_pool3d.out aten::adaptive_avg_pool1d.out "
        "aten::adaptive_avg_pool2d.out aten::adaptive_avg_pool3d.out aten::adaptive_max_pool2d.out "
        "aten::adaptive_max_pool3d.out aten::fractional_max_pool2d.output aten::fractional_max_pool3d.output"
    ),
    "delegraph_portable.pooling.backward": (
        "aten::_adaptive_avg_pool2d_backward.out aten::_adaptive_avg_pool3d_backward.out "
        "aten::adaptive_max_pool2d_backward.grad_input aten::adaptive_max_pool3d_backward.grad_input "
        "aten::avg_pool2d_backward.grad_input aten::avg_pool3d_backward.grad_input "
        "aten::fractional_max_pool2d_backward.grad_input aten::fractional_max_pool3d_backward.grad_input "
        "aten::max_pool2d_with_indices_backward.grad_input aten::max_pool3d_with_indices_backward.grad_input"
    ),
    "delegraph_portable.pooling.forward": (
        "aten::avg_pool1d.out aten::avg_pool2d.out aten::avg_pool3d.out aten::max_pool2d_with_indices.out "
        "aten::max_pool3d_with_indices.out"
    ),
    "delegraph_portable.quantized.parameters": (
        "quantized_decomposed::choose_qparams.Tensor_out quantized_decomposed::choose_qparams_per_token_asymmetric.out "
        "quantized_decomposed::choose_qparams_symmetric.Tensor_out"
    ),
    "delegraph_portable.quantized.tensors": (
        "quantized_decomposed::add.out quantized_decomposed::dequantize_per_channel.out "
        "quantized_decomposed::dequantize_per_channel_group.out quantized_decomposed::dequantize_per_tensor.Tensor_out "
        "quantized_decomposed::dequantize_per_tensor.out quantized_decomposed::dequantize_per_token.out "
        "quantized_decomposed::quantize_per_channel.out quantized_decomposed::quantize_per_channel_group.out "
        "quantized_decomposed::quantize_per_tensor.Tensor_out quantized_decomposed::quantize_per_tensor.out "
        "quantized_decomposed::quantize_per_token.out"
    ),
    "delegraph_portable.quantized.weights": (
        "quantized_decomposed::embedding_2bit.dtype_out quantized_decomposed::embedding_2bit.out "
        "quantized_decomposed::embedding_4bit.dtype_out quantized_decomposed::embedding_4bit.out "
        "quantized_decomposed::embedding_byte.dtype_out quantized_decomposed::embedding_byte.out "
        "quantized_decomposed::mixed_linear.out quantized_decomposed::mixed_mm.out"
    ),
    "delegraph_portable.reductions.norms": (
        "aten::_cdist_forward.out aten::_pdist_forward.out aten::dist.out aten::linalg_vector_norm.out"
    ),
    "delegraph_portable.reductions.reduce": (
        "aten::amax.out aten::amin.out aten::any.all_out aten::any.dims_out aten::any.out aten::argmax.out "
        "aten::argmin.out aten::max.dim_max aten::max.unary_out aten::mean.dtype_out aten::mean.out aten::min.dim_min "
        "aten::min.unary_out aten::prod.int_out aten::prod.out aten::sum.IntList_out aten::var.correction_out "
        "aten::var.out aten::var_mean.correction_out"
    ),
    "delegraph_portable.reductions.scans": (
        "aten::cummax.out aten::cummin.out aten::cumprod.out aten::cumsum.out aten::logcumsumexp.out"
    ),
    "delegraph_portable.sorting.counting": (
        "aten::_histogramdd_bin_edges.out aten::_histogramdd_from_bin_cts.out aten::_histogramdd_from_bin_tensors.out "
        "aten::bincount.out aten::histc.out aten::histogram.bin_ct_out aten::histogram.bins_tensor_out"
    ),
    "delegraph_portable.sorting.search": (
        "aten::bucketize.Scalar_out aten::bucketize.Tensor_out aten::searchsorted.Scalar_out "
        "aten::searchsorted.Tensor_out"
    ),
    "delegraph_portable.sorting.sort": (
        "aten::kthvalue.values aten::median.dim_values aten::median.out aten::mode.values aten::nanmedian.dim_values "
        "aten::nanmedian.out aten::sort.values aten::sort.values_stable aten::topk.values"
    ),
    "delegraph_portable.sorting.unique": (
        "aten::_unique.out aten::_unique2.out aten::unique_consecutive.out aten::unique_dim.out "
        "aten::unique_dim_consecutive.out"
    ),
}

OPERATORS: Final = {module: operators.split() for module, operators in _TABLE.items()}
