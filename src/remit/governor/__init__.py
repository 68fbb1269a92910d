"""The use cases, one file each. They are given a ledger, keys, engines and a clock, and build none of them."""
