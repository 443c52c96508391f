"""Programs -> a deployable with what they need and nothing else: a wheel, a zipapp, or ExecuTorch's operator YAML.

needs.py           Program -> the operators, kernel keys, backends and dtypes that it needs
choice.py          needs + what is installed -> the kernels and backends that win
registrations.py   a kernel library -> which module registers which kernel
imports.py         source -> its import statements
modules.py         modules -> the modules that they import, and what they need from others
distributions.py   module -> the distribution that it is of, with its requirements and licence
contents.py        the choice -> the files of a deployable
package.py         files -> wheel or zipapp
bytecode.py        modules -> bytecode, for zipapps that start fast
report.py          what was packed up -> what was kept and left out, with the sizes
operator_yaml.py   needs -> `selected_operators.yaml`
deployed.py        in the deployable: what was put in -> a loaded program
"""
