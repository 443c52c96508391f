"""A module and batches -> what its observers have seen, and what quantizing did to each layer.

calibrate.py        a module with observers + batches -> the observers have seen what flows
measure.py          the model in float and quantized, on one batch -> how far each layer is off
layers.py           what was measured -> a row for each layer, and the layers that lose most
float_layers.py     the layers whose weights stay float although their recipe is another one, and why
report.py           rows -> a table, JSON, a picture
picture.py          named numbers -> an SVG with a bar for each
"""
