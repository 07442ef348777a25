"""Polling that spares the cluster: its pace, one cache for all coaches of a user, patience with slow
answers."""
