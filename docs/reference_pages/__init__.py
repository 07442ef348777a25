"""What `docs/make_reference.py` writes, one module for each theme. Each page is made from what the program
itself reads: its parsers, its tables of keys, its registers."""
