"""A caller's arguments -> a method's inputs; its outputs -> the caller's arrays.

arguments.py        (args, kwargs) -> flat inputs
pytree.py           the structure of a model's arguments and results
contract.py         what the program assumes of its inputs -> checks
inputs.py           an argument -> an input value: checked, then copied or shared
device_inputs.py    an argument for an input on a device -> the caller's memory there, or a copy
method_inputs.py    all inputs of a call, together
targets.py          what the caller gives as `out`
outputs.py          output values -> arrays
"""
