"""A graph -> the same function in calls that a quantizer can give grids.

cells.py            cells of recurrent layers, and bilinear ones -> linear layers
stored_products.py  products with a matrix of the model's -> linear layers
attention.py        attention in one call -> products and a softmax
norm_folding.py     batch norms behind layers -> the layers' weights
batch_norm.py       a convolution and a batch norm that train with rounding -> the convolution
calls.py            a call -> calls before it
"""
