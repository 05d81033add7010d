"""Damage by hand to the keys is found, explained and repaired."""
