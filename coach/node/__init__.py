"""What runs beside the training, on the node: the supervisor (`coach run`) and the sampler.

It runs under the interpreter of the site's module, venv or container (Python >= 3.9), so it imports
coach.runs and the standard library only; pynvml is used where it is installed.
"""
