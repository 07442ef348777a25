"""Make measurements comparable: quantities of GPUs, the source of a number, stacks in groups."""
