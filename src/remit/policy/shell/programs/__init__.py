"""Judges what known programs do with their words. The tables of the programs lie beside the code."""
