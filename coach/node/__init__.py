"""Code that runs beside the training, on the node: the supervisor (`coach run`) and the sampler.

It runs under the interpreter of the site's module, venv or container (Python >= 3.9). It therefore imports
only coach.runs and the standard library, and pynvml if that is installed.
"""
