"""Two users of one machine: what one of them leaves in shared places never decides for the other."""
