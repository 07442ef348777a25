"""The queue and the nodes: arrays, free GPUs, node states, reasons for pending."""
