"""Convolutions of one to three dims.

forward.py    `convolution`, grouped, dilated, transposed
shifted.py    the same where gathering patches costs more than the products: few outputs in each group
backward.py   `convolution_backward`
geometry.py   sizes, strides, padding and dilation -> the shapes of all of them
patches.py    `im2col`, `col2im`
"""
