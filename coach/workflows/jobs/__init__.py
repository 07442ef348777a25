"""Work on single jobs and runs: attach, act on, clean up, look up in accounting and in the queue."""
