"""ATen program + quantizers + calibration data -> ATen program with quantize and dequantize calls, weights quantized.

    recipes.py          what the user wrote for `recipe=` -> a `Recipe` for each part of the model
    request.py          what else the user wrote -> quantizers and batches, by method
    program.py          the way through the rest: torchao's `prepare_pt2e`, calibration, `convert_pt2e`
    training.py         the same way for a model that is trained before it is converted
    batch_norm.py       of such a model, the convolution that a batch norm becomes

    body_weights.py     weights that bodies of control flow are given -> attributes of the bodies, and back
    computed_weights.py weights that are computed from the model's -> weights
    cells.py            cells of recurrent layers, and bilinear ones -> linear layers
    stored_products.py  products with a matrix of the model's -> linear layers
    norm_folding.py     batch norms behind layers -> the layers' weights
    shared_buffers.py   buffers that another method writes, which are no constants

    composed.py         several quantizers -> one; an earlier one's annotations stay
    masked_scores.py    a graph -> what stands between a mask and a softmax, which stays float
    generic.py          the quantizer for kernel libraries and for backends that bring none
    annotations.py      a call and specs -> its annotation, as torchao keeps it
    specs.py            a recipe -> torchao's specs of it, to annotate with
    observers.py        values that flow past -> the range that loses least
    residual_sums.py    a graph -> the residual sums that are normalized, which need more than 8 bits
    attention.py        attention in one call -> products and a softmax, each of which gets a grid

    calibrate.py        a module with observers + batches -> the observers have seen what flows
    calls.py            a call -> calls before it
    layer_weights.py    a call -> where its weight is: the one table of such layers
    weight_only.py      the weights of calls that no quantizer annotates, stored in 8 or 4 bits
    torchao_weights.py  a program that torchao's `quantize_` went over -> its weights stored as ours are
    packing.py          weights -> codes and scales, and back, in operators that every runtime has
    names.py            constants named after the weights that they stand for
    reexport.py         the converted module -> a program with the shapes that the first one was exported for

    measure.py          the model in float and quantized, on one batch -> how far each layer is off
    layers.py           what was measured -> a row for each layer, and the layers that lose most
    float_layers.py     the layers whose weights stay float although their recipe is another one, and why
    report.py           rows -> a table, JSON, a picture
    picture.py          named numbers -> an SVG with a bar for each
    torchao.py          torchao's functions, or what to install

torchao is needed from the first quantizer on, and imported then.
"""
