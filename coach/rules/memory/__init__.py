"""Rules about memory of GPU and host."""
