"""Fixes that several rules offer, and the facts of a launch that they change. No rules here."""
