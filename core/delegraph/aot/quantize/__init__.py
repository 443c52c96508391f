"""ATen program + quantizers + calibration data -> ATen program with quantize and dequantize calls, weights quantized.

    recipes.py      what the user wrote for `recipe=` -> a `Recipe` for each part of the model
    request.py      what else the user wrote -> quantizers and batches, by method
    shared_buffers.py   buffers that another method writes, which are no constants
    program.py      the way through the rest: torchao's `prepare_pt2e`, calibration, `convert_pt2e`
    training.py     the same way for a model that is trained before it is converted

    rewrites/       the same function in calls that a quantizer can give grids
    annotation/     which values and weights are rounded, and on what grids
    annotations.py  a call and specs -> its annotation, as torchao keeps it
    measurement/    what observers see; what quantizing did to each layer
    weights/        weights, wherever they come from -> constants in 8 or 4 bits
    torchao.py      torchao's functions, or what to install
    torchao_weights.py  a program that torchao's `quantize_` went over -> its weights stored as ours are

torchao is needed from the first quantizer on, and imported then.
"""
