"""A real terminal that tests drive through tmux, and the tests that need it."""
