"""The arithmetic of a workshop, and findings that a drill withholds."""
