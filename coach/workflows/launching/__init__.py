"""From a request to a submitted run: plan, start, sweep, relaunch, fixes, refusals."""
