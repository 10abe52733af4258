"""Faster forms of what training on a CPU spends its time on; each equals its plain form."""
