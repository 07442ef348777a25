"""Rank findings and jobs, and put a diagnosis into words: text, Markdown, `no finding`."""
