"""The pages that `docs/make_reference.py` writes, one module for each theme. Each page is made from the
program's own data: its parsers, its tables of keys, its registers."""
