"""Jobs and runs one by one: attach, act on, clean up, look up in accounting and in the queue."""
