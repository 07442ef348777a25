"""What is read: one module per source. A source polls or streams and emits Readings; its parse functions are
pure and stand beside it."""
