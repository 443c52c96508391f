"""ATen program + quantizers + calibration data -> ATen program with quantize and dequantize calls, weights quantized.

    request.py      what the user wrote -> quantizers and batches, by method
    composed.py     several quantizers -> one; an earlier one's annotations stay
    calibrate.py    a module with observers + batches -> the observers have seen what flows
    program.py      the way through them: torchao's `prepare_pt2e`, calibration, `convert_pt2e`
    names.py        constants named after the weights that they stand for
    reexport.py     the converted module -> a program with the shapes that the first one was exported for

torchao is needed from the first quantizer on, and imported then.
"""
