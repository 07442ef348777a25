"""One file per screen; screens do not import each other."""
