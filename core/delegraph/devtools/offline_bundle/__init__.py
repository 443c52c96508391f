"""Programs -> a folder from which a machine without a network installs what they need.

requirements.py   programs + what is installed -> the distributions that run them
wheels.py         distributions -> wheels for a platform and a Python, with all that they require
bundle.py         these, the programs and an installer -> the folder
"""
