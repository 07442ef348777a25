"""A real terminal, driven by the tests through tmux, and the tests that need one."""
