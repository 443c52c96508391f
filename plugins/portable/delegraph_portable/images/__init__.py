"""Kernels that sample and rearrange images, and other tensors with a grid.

padding.py         `constant_pad_nd`, `reflection_pad2d`, `replication_pad3d` …
upsampling.py      `upsample_nearest2d`, `upsample_bilinear2d`, also antialiased …
grid_sampling.py   `grid_sampler_2d`, `grid_sampler_3d`
interpolation.py   where an output samples, and the weights of what lies around
pixel_shuffle.py   `pixel_shuffle`, `pixel_unshuffle`
"""
