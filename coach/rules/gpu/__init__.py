"""Rules about GPUs that wait or are used badly."""
