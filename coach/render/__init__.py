"""Values to lines of spans, for screens, commands and Markdown. Pure: no widget, no I/O, no clock."""
