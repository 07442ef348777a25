"""Widgets that several screens use."""
