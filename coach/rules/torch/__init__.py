"""Rules about errors of torch that are not of CUDA or of distributed training."""
