"""Values to lines and rows of text, pure: no widget, no I/O, no clock."""
