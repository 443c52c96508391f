"""Records from a file -> nothing, or an error that says which of them is wrong.

field_checks.py     numbers, strings and lists
verify_values.py    a plan's values
verify_devices.py   values on devices
verify.py           a whole program
"""
