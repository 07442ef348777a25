"""Looks that spare the cluster: their pace, one cache for all coaches, patience with slow answers."""
