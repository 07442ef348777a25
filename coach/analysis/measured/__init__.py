"""Measurements made comparable: quantities of GPUs, their origin, stacks in groups."""
