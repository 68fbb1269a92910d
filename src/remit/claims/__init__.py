"""What is signed: missions, passports, receipts, chains and attestations.

Pure. Nothing here reads a file, a clock, the environment or a source of randomness: the caller passes bytes,
`now` and entropy in, and gets values out. Whoever keeps evidence or serves it lives above.
"""
