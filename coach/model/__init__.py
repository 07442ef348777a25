"""Nouns: frozen values that sources make and that rules and screens read. Standard library only, no I/O, no
clock."""
