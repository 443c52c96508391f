"""kernels.yaml -> the module that registers the kernels it lists.

read.py       YAML -> entries, each word with its line
operators.py  an entry's operator -> the schema that its kernel is called by
keys.py       arg_meta and aliases -> kernel keys
functions.py  `module:function` -> a check that it is there and fits the schema
check.py      entries -> registrations, or every violation at once
generate.py   registrations -> the module's text
"""
