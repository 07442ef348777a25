"""Rules about ranks that work together: rendezvous, NCCL, gloo, stragglers."""
