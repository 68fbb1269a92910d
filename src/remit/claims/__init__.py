"""What is signed: missions, passports, receipts, chains and attestations.

Pure. Nothing here reads a file, a clock, the environment or a source of randomness: the caller passes bytes,
`now` and entropy in, and gets values out. Storing and serving evidence is the task of other packages.
"""
