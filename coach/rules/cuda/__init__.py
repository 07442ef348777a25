"""Rules about errors of CUDA and its libraries."""
